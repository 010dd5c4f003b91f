"""What the codes are used for: class dictionaries, their task-driven refinement, anomaly scores."""
