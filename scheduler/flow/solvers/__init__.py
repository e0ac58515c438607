"""Solvers of min-cost-flow problems, a module for each algorithm (paper 004, §5.2.1 and §5.2.4)."""
