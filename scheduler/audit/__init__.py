"""The scheduler's audit log (Sparrow §6)."""
