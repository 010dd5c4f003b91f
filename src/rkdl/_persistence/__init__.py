"""Files: saved models, checkpoints, and the checks of what is read back."""
