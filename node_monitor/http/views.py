"""What the node monitor's HTTP answers and is asked, as structs of JSON."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from node_monitor.core import NodeMonitorCore
from node_monitor.executors.executor_state import AppState
from sparrow_py.access.principals import Principal
from sparrow_py.daemon.version import version
from sparrow_py.job import NAME_BYTES_MAX
from sparrow_py.wire.messages import PROTOCOL_VERSION

STATE_BODY_BYTES_MAX = 64 << 10
"""Largest body of a change of state."""

NodeName = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_BYTES_MAX})]
State = Literal["ready", "cordoned", "draining"]
"""`messages.READY`, `CORDONED` and `DRAINING`."""


class AppStatus(msgspec.Struct):
    """An app that the node is to run.

    `starting`: its executors are being started, and none is there yet. `awaited`: they come by themselves, and none has
    come. `withdrawn`: they do not start, for this `reason`.
    """

    state: Literal["offered", "starting", "awaited", "withdrawn"]
    executors: int
    reason: str


class LaneStatus(msgspec.Struct):
    """The lane of tasks that a plane has placed at the node: slots that they may hold, and do hold; those that wait;
    those that were handed back since the start."""

    slots: int
    held: int
    waiting: int
    handed_back: int


class NodeStatus(msgspec.Struct):
    """A node of this process."""

    id: str
    slots: int
    free_slots: int
    queued_by_user: dict[str, int]
    schedulers: list[str]
    state: State
    attributes: dict[str, str]
    apps: dict[str, AppStatus]
    lane: LaneStatus
    scheduler_addresses: list[str]
    """Where it has dialled those of `schedulers` that are other processes."""


class NodeList(msgspec.Struct):
    """The nodes of this process, the version of sparrow-py, and the newest protocol that it speaks."""

    nodes: list[NodeStatus]
    version: str = msgspec.field(default_factory=version)
    protocol: int = PROTOCOL_VERSION


class StateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The state to enter, and the node that is to enter it: without `node` all nodes of this process are."""

    state: State
    node: NodeName | None = None


class LeaveRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The node that is to leave."""

    node: NodeName


class BlobStored(msgspec.Struct):
    """A blob that this node monitor has."""

    hash: str
    size: int


class Node(Protocol):
    """A node of this process, as far as HTTP needs it."""

    id: str
    slots: int
    core: NodeMonitorCore

    @property
    def scheduler_addresses(self) -> list[str]:
        """Where it has dialled the schedulers that it is linked to."""

    def change_state(self, state: str) -> None:
        """Enter this state."""


def status(node: Node, principal: Principal) -> NodeStatus:
    """A node, as far as the principal is to know: of the queues, only those of users that the principal may act for."""
    core = node.core
    return NodeStatus(
        node.id,
        node.slots,
        core.free_slots,
        {user: queued for user, queued in core.queue.users().items() if principal.may_act_for(user)},
        sorted(core.schedulers),
        core.state,  # type: ignore[arg-type]
        core.info.attributes,
        {name: _app_status(app) for name, app in core.apps.items()},
        LaneStatus(core.lane.slots, core.occupied, len(core.lane.waiting), core.counters.placed_handed_back),
        node.scheduler_addresses,
    )


def _app_status(app: AppState) -> AppStatus:
    return AppStatus(app.offer.state.value, len(app.executors), app.offer.reason)
