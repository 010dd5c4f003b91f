"""Learning problems, their updates, streams, and the loop that alternates coding and updates."""
