"""Where processes run and how the network between them is cut.

With root on Linux, a run whose network will be cut has a network namespace for each worker and one for all else; the
cut takes a worker's cable out, so that packets vanish and nobody is told. Elsewhere the worker is stopped with SIGSTOP:
it does not answer either, but its kernel still takes what is sent to it.
"""

from __future__ import annotations

from benchmarks.faults_peers.faults import WORKERS
from benchmarks.laboratory.network import Namespaces, Network, why_no_namespaces

HEAD = "head"
"""The machine of all but the workers."""
WORKER_NAMES = [f"worker-{number}" for number in range(WORKERS)]


def namespaces_possible() -> bool:
    """Whether this process may make network namespaces."""
    return not why_no_namespaces()


def network(*, with_namespaces: bool) -> Network:
    """On loopback each has an address of its own. None is 127.0.0.1, in place of which Ray takes another."""
    machines = [HEAD, *WORKER_NAMES]
    if with_namespaces:
        return Namespaces(machines)
    return Network({machine: f"127.0.0.{number}" for number, machine in enumerate(machines, 2)})
