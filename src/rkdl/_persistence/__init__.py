"""Saved models, checkpoints, and checks of what is read back."""
