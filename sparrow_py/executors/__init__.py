"""The protocol between executors and node monitors, and what executors in Python need for it."""
