"""Processes on Linux: their control, their descendants, their ends."""
