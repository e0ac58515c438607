"""Altruistic scheduling of jobs whose stages, demands and durations are known (paper 002, Carbyne).

A job yields what it need not have now, and what others yield makes jobs faster.

The modules here are mathematics: they import nothing else of ours. Amounts of resources are parts of the cluster's
capacity, as arrays with a number for each resource; times are seconds on the clock of whoever calls.
"""
