"""A worker between its links and its core: what comes behind a message that fails, and values that cannot be made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow
from frontends.dataflow.control_messages import Enter, Halt, Shipped
from frontends.dataflow.shipping import pack_definition, unpack_definition
from frontends.dataflow.worker import Worker
from frontends.dataflow.worker_core import WorkerCore, layout_of


class _Links:
    """Of a worker: what comes at its next look."""

    def __init__(self) -> None:
        self.came: list[Any] = []

    def receive(self) -> list[tuple[int, Any]]:
        came, self.came = self.came, []
        return [(-1, message) for message in came]

    def lost(self) -> list[Any]:
        return []

    def send_waiting(self) -> None:
        """Nothing waits."""


class _Core:
    """Takes epochs, and fails at all else."""

    epoch = 0

    def receive(self, peer: int, message: Any) -> None:
        if isinstance(message, Halt):
            self.epoch = message.epoch
        else:
            raise ZeroDivisionError(message)


def looking(*came: Any) -> Worker:
    worker = Worker.__new__(Worker)
    worker._links = worker._peers = _Links()  # type: ignore[assignment]
    worker._core = _Core()  # type: ignore[assignment]
    worker._error = None
    worker._links.came = list(came)  # type: ignore[attr-defined]
    worker._look()
    return worker


def test_a_message_that_fails_takes_none_with_it_that_came_behind() -> None:
    worker = looking("bad", Halt(3))
    assert worker._core.epoch == 3
    worker._raise_error()  # It was of the epoch before.


def test_a_message_that_fails_in_this_epoch_is_told_of() -> None:
    with pytest.raises(ZeroDivisionError):
        looking(Halt(3), "bad")._raise_error()


class _Outbox:
    def send(self, peer: int, message: Any) -> None:
        """Nobody is there."""

    def flush(self) -> None:
        """Nothing waits."""


def test_values_that_cannot_be_made_are_not_tried_again_in_the_same_epoch() -> None:
    df = Dataflow(partitions=1, progress=False)
    rows = df.load(lambda index: np.ones(1 // index), partitions=1)._spec.id
    definition = df._definition
    core = WorkerCore(0, _Outbox(), unpack_definition, is_commanded=True)
    shipped = Shipped(0, layout_of(definition), pack_definition(definition), b"", b"")
    placed = [(definition.groups[rows], 0, 0, 1)]
    for epoch in (1, 2):
        core.receive(-1, Enter(epoch, shipped, 0, {}, placed, (0,), [(rows, 0)], [], [], [], joins=False))
        assert core.wants_load
        with pytest.raises(ZeroDivisionError):
            core.load()
        assert not core.wants_load and core.core is None
