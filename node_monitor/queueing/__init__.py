"""The reservations and tasks that wait at a node, and which is next."""
