"""Applications: kernel features learned for a label and their readouts, anomaly scores."""
