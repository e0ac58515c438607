"""The figures of paper 004 about min-cost-flow solvers and the plane that uses them: `python -m benchmarks.flow`."""
