"""The executors of a node: their processes, their confinement, and whether their apps are offered."""
