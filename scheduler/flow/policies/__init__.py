"""Scheduling policies: what it costs to have a task run here, there, or wait (paper 004, §2.3.3 and §5.4)."""
