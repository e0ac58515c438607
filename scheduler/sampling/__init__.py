"""The sampling plane: batch sampling with late binding (Sparrow §3)."""
