"""What is written to logs: in printable characters, and no more than a log should take."""
