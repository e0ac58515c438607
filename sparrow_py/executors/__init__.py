"""How executors and node monitors talk, for executors in Python."""
