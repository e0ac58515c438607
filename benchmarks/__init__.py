"""What scheduling costs, measured: one command per figure, `python -m benchmarks.NAME [--json] [--repeat N]`.

Each starts real daemons on loopback, on free ports, and ends them. Machines are noisy: compare
figures of one run with each other (two tables of one run are interleaved), and CPU time rather than wall time.
"""
