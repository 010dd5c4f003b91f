"""Map-reduce over chunks on threads or on a Dask cluster; memory budgets, BLAS threads, settings."""
