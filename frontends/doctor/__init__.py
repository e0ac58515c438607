"""`sparrow doctor`: what is wrong with this machine, or with a cluster, and what to do about it."""
