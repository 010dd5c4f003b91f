"""Applications of sparse codes: class dictionaries, their discriminative refinement, anomaly scores."""
