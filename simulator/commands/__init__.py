"""Commands of `python -m simulator`, a module each, and what they print."""
