"""`python -m benchmarks.graphs`: graphs of single calls whose arguments are futures, here and with Dask and Ray."""
