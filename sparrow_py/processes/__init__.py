"""Processes on Linux: how they are controlled, how their descendants are ended, and how they ended."""
