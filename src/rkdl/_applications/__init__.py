"""Applications: kernel features learned for a label and their readings, anomaly scores."""
