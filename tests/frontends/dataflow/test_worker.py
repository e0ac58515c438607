"""A worker between its links and its core: what comes behind a message that fails, and values that cannot be made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow
from frontends.dataflow.control_messages import (
    CONTROLLER,
    DRIVER,
    ControllerHere,
    Enter,
    Halt,
    Hello,
    Leaving,
    Order,
    Shipped,
)
from frontends.dataflow.reports import Reports
from frontends.dataflow.shipping import pack_definition, unpack_definition
from frontends.dataflow.worker import Worker
from frontends.dataflow.worker_core import WorkerCore, layout_of

NOWHERE = ("", "", "", 0)


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


class _Dialled(_Links):
    """Of a worker that is linked with nobody, and whose dials are answered."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] | None = None
        """To the controller; None while there is none."""
        self.ports: list[int] = []
        """Of the controllers that were dialled."""

    def dial(self, peer: int, address: Any) -> None:
        assert peer == CONTROLLER
        self.sent = []
        self.ports.append(address.port)

    def peers(self) -> list[int]:
        return [] if self.sent is None else [CONTROLLER]

    def send(self, peer: int, message: Any) -> None:
        if self.sent is None:
            raise KeyError(peer)
        self.sent.append(message)

    def flush(self) -> None:
        """Nothing waits."""


def orphan() -> tuple[Worker, _Dialled]:
    """A worker whose controller is gone, and its links."""
    worker = Worker.__new__(Worker)
    worker.order = Order(3, b"", NOWHERE, NOWHERE, "auto", False)
    worker._links = worker._peers = links = _Dialled()  # type: ignore[assignment]
    worker._orphan_until_s, worker._where, worker._leaving, worker._next_controller = 10.0, NOWHERE, None, None
    worker._reports = Reports(lambda message: links.send(CONTROLLER, message), lambda: 0.0)
    return worker, links


def here(port: int) -> ControllerHere:
    return ControllerHere(("", "", "127.0.0.1", port))


def test_a_controller_that_is_told_of_before_the_end_of_the_one_before_is_seen_is_dialled_after_that() -> None:
    """A worker that is late sees both at one look, and takes messages first."""
    worker, links = orphan()
    worker._take(DRIVER, here(1))
    worker._take(DRIVER, here(2))
    worker._take(DRIVER, here(3))
    assert links.ports == [1]
    links.sent = None
    worker._see_lost(CONTROLLER, "its process is gone")
    assert links.ports == [1, 3] and worker._orphan_until_s is None
    links.sent = None
    worker._see_lost(CONTROLLER, "its process is gone")
    assert links.ports == [1, 3] and worker._orphan_until_s is not None


def test_a_slot_that_is_wanted_back_while_there_is_no_controller_is_told_of_the_next_one() -> None:
    worker, links = orphan()
    worker.leave(5.0)
    worker._dial_controller(NOWHERE)
    assert [type(message) for message in links.sent or ()] == [Hello, Leaving]
    worker.leave(5.0)
    assert links.sent is not None and links.sent[1] == links.sent[2] == Leaving(3, 5.0)


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
