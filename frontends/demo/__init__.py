"""`make demo`: a real job in three stages on an embedded cluster, its answer and its overhead."""
