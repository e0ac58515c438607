"""What the node monitor's HTTP says and is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from sparrow_py.job import NAME_BYTES_MAX

if TYPE_CHECKING:
    from node_monitor.daemon import NodeMonitor
    from node_monitor.executors.executor_state import AppState
    from sparrow_py.access.principals import Principal

STATE_BODY_BYTES_MAX = 64 << 10
"""Largest body of a change of state."""

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


class NodeList(msgspec.Struct):
    """The nodes of this process."""

    nodes: list[NodeStatus]


class StateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What state to enter, and which node is to: without `node` all nodes of this process are."""

    state: State
    node: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_BYTES_MAX})] | None = None


class BlobStored(msgspec.Struct):
    """A blob that is here."""

    hash: str
    size: int


def status(node: NodeMonitor, principal: Principal) -> NodeStatus:
    """A node, as far as the principal is to know of it: of queues only those of its users."""
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
    )


def _app_status(app: AppState) -> AppStatus:
    return AppStatus(app.offer.state.value, len(app.executors), app.offer.reason)
