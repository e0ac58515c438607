"""The soak: a cluster of real processes under load, in which everything that can fail does; nothing may be lost."""
