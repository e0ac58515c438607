"""Languages in which workflows are written; each becomes the same intermediate representation."""
