"""Simulator: the daemons' own cores under virtual time.

from simulator import Cluster, Synthetic, simulate
simulate(Cluster(nodes=200, slots=4), Synthetic(load=0.8, tasks=50)).figures()
"""

from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from loadgen.traces import Trace, read_trace
from simulator.cluster import Cluster
from simulator.network import Delay
from simulator.policies import POLICIES, Settings
from simulator.simulate import Result, simulate

__all__ = [
    "POLICIES", "Cluster", "Delay", "Durations", "Result", "Settings", "Synthetic", "Trace", "read_trace", "simulate",
]  # fmt: skip
