"""The program's process between the cluster and a controller that has just been started."""

from __future__ import annotations

import threading
from typing import Any

from frontends.dataflow.control_messages import CONTROLLER, ControllerHere, Outcome, Where
from frontends.dataflow.driver import Driver

HERE: Where = ("", "", "127.0.0.1", 1)


class _Links:
    """Of a driver: what it sends, as messages by peer."""

    def __init__(self) -> None:
        self.links = self
        self.sent: list[tuple[int, Any]] = []

    def send(self, peer: int, message: Any) -> None:
        self.sent.append((peer, message))

    post = send


def test_a_controller_is_told_of_workers_that_ended_before_it_had_a_link() -> None:
    """It would wait for ever for those that it was started with."""
    driver = Driver.__new__(Driver)
    driver._peers = links = _Links()  # type: ignore[assignment]
    driver._lock = threading.Lock()
    driver._told, driver._runs, driver._awaited = set(), {}, None
    driver._known, driver._jobs = [3, 4, 5], {4: None}  # type: ignore[dict-item]
    driver._controller_here(HERE)
    outcomes = [(peer, message.worker) for peer, message in links.sent if isinstance(message, Outcome)]
    assert sorted(outcomes) == [(CONTROLLER, 3), (CONTROLLER, 5)]
    assert (4, ControllerHere(HERE)) in links.sent
