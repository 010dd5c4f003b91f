"""The estimators, each in a module of its own; `rkdl` has their names."""
