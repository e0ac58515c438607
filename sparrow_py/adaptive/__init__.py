"""Clusters that grow and shrink with what their jobs could use.

`deciding` says when, and is pure; `scaling.Adaptive` looks and carries it out. `LocalCluster.adapt`, `SSHCluster.adapt`
and `SlurmCluster.adapt` make one.
"""
