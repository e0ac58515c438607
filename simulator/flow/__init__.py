"""The plane that solves the cluster as a flow network, under virtual time (paper 004, chapter 6)."""
