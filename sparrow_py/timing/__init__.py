"""Clocks, timers, and what becomes of them when the process stands still."""
