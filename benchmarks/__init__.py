"""rkdl and comparable libraries timed on the same inputs in one run: ``python -m benchmarks``."""
