"""Workloads of jobs whose stages, demands and durations are known, for the altruistic scheduler (paper 002)."""
