"""How often peers of a link say that they are there."""

HEARTBEAT_MIN_S = 0.01
"""Less would cost more than it tells, and 0 would take every peer for lost."""
