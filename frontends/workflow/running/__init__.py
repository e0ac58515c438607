"""A run of a workflow: its plan, its jobs on the cluster, and what they leave in the store."""
