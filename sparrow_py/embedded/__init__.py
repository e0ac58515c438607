"""`LocalCluster`: a cluster on this machine, and the output of its tasks."""
