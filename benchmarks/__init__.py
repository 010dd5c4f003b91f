"""rkdl beside its peers, on the same inputs in one run: ``python -m benchmarks``."""
