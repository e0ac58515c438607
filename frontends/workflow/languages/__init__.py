"""Languages in which workflows are written, one module each."""
