"""The scheduler's HTTP."""
