"""What the controller's core wants done by its driver."""

from __future__ import annotations

from typing import Any, NamedTuple

from frontends.dataflow.control_messages import PlaceOf

Key = tuple[int, int]
"""Of a snapshot: run and block."""


class Send(NamedTuple):
    worker: int
    message: Any


class Tell(NamedTuple):
    """To the driver."""

    message: Any


class Keep(NamedTuple):
    """Write values of a snapshot."""

    key: Key
    values: dict[PlaceOf, Any]


class Complete(NamedTuple):
    """The snapshot is whole, with what signals said before it."""

    key: Key
    signals: dict[int, bool]


class Drop(NamedTuple):
    """The snapshot is not needed any more."""

    key: Key


class SendStored(NamedTuple):
    """Read values of a snapshot and send them."""

    worker: int
    epoch: int
    key: Key
    places: list[PlaceOf]


Effect = Send | Tell | Keep | Complete | Drop | SendStored
