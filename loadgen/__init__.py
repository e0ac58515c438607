"""Workloads: which jobs arrive when, and how long their tasks take."""
