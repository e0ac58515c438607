"""How much there may be of something, and whose share of it is how large."""
