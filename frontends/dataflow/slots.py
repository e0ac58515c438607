"""Slots for workers, which a first run waits for: nodes may be on their way, or be started again just then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from frontends.dataflow.errors import InvalidProgram, RunLost
from sparrow_py import Client
from sparrow_py.cluster_nodes import NodeStatus
from sparrow_py.counted import counted
from sparrow_py.errors import NoScheduler
from sparrow_py.wire.dialling import REDIAL_MAX_S

APP = "dataflow"
LOOK_EVERY_S = 0.25
NODES_SHOWN = 5
"""Nodes that an error names at most."""
UNREACHABLE_S = 2 * REDIAL_MAX_S
"""A run that needs a scheduler waits for one so long after the last link has ended. Between two dials there are
`REDIAL_MAX_S` at most, so a scheduler that is started again at once has been dialled by then."""


def no_scheduler(client: Client, waited_s: float = math.inf) -> str:
    """That none can be reached, with all that were tried; empty unless it has been so for `UNREACHABLE_S`, and somebody
    has waited for so long, or each has refused the client's token or certificate: to wait does not help then."""
    if client.is_denied():
        return f"no scheduler takes this client: {client.why_cut_off()}"
    if min(client.cut_off_s(), waited_s) < UNREACHABLE_S:
        return ""
    return f"no scheduler has been reached for {UNREACHABLE_S:g} s: {client.why_cut_off()}"


def wait_for_slots(
    client: Client,
    needed: int,
    timeout_s: float,
    is_over: Callable[[float], bool],
    show: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """The slots of nodes that run workers, once there are as many as workers are needed.

    `is_over` waits for so long and says whether the Dataflow is closed, `show` tells people what is waited for.
    `InvalidProgram` if there are too few after `timeout_s`, `NoScheduler` if nobody can say. A client that has been cut
    off for long has `UNREACHABLE_S` from now on, in which it dials again: a scheduler may have been started just now.
    """
    begun_s = clock()
    workers = f"{counted(needed, 'worker', 'are')} needed"
    while True:
        waited_s = clock() - begun_s
        nodes, unknown = _nodes(client, waited_s)
        slots = sum(slots_of(node) for node in nodes)
        if slots >= needed and not unknown:
            return slots
        found = unknown or f"nodes that run app {APP} have {counted(slots, 'slot')} ({_shown(nodes)})"
        if waited_s >= timeout_s:
            why = f"min_workers: {workers}, and {found} after start_timeout_s = {timeout_s:g} s"
            raise NoScheduler(why) if unknown else InvalidProgram("min_workers", needed, "", why)
        show(f"{workers}, and {found}")
        if is_over(LOOK_EVERY_S):
            raise RunLost("the Dataflow was closed")


def _nodes(client: Client, waited_s: float) -> tuple[Sequence[NodeStatus], str]:
    """The nodes, and why they are not known."""
    try:
        return client.nodes(), ""
    except NoScheduler as error:
        if why := no_scheduler(client, waited_s):
            raise NoScheduler(why) from error
        return (), str(error)


def slots_of(node: NodeStatus) -> int:
    """Those that workers may have."""
    return node.slots if node.is_ready and APP in node.apps else 0


def _shown(nodes: Sequence[NodeStatus]) -> str:
    """The nodes, with what each has."""
    shown = [f"{node.id} {_state_of(node)}" for node in nodes[:NODES_SHOWN]]
    more = len(nodes) - len(shown)
    return ", ".join(shown + ([f"and {more} more"] if more else [])) or "no node is connected"


def _state_of(node: NodeStatus) -> str:
    if not node.is_ready:
        return f"is {node.state}"
    return f"has {node.slots}" if APP in node.apps else f"does not run app {APP}"
