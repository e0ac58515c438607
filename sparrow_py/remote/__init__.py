"""Node monitors on other machines, started from here by ssh or srun."""
