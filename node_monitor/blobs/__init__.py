"""Large inputs and results that lie at a node."""
