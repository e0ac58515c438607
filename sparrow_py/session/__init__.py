"""A client's session with its schedulers, on an event loop: its jobs, its links, its large data."""
