"""Slots that a first run waits for: nodes that come, nodes that do not, and nobody who says which there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frontends.dataflow import InvalidProgram
from frontends.dataflow.errors import RunLost
from frontends.dataflow.slots import LOOK_EVERY_S, NODES_SHOWN, UNREACHABLE_S, wait_for_slots
from sparrow_py.cluster_nodes import NodeStatus
from sparrow_py.errors import NoScheduler

APPS = {"python": "3.11", "dataflow": ""}
READY = NodeStatus("n", 2, apps=APPS)


class Cluster:
    """A client whose cluster has other nodes at each look; the last ones stay."""

    def __init__(self, *listings: list[NodeStatus] | None) -> None:
        self._listings = list(listings)
        self.away_s = 0.0
        self.denied = False
        self.shown: list[str] = []
        self.waited_s = 0.0

    def nodes(self) -> list[NodeStatus]:
        listing = self._listings.pop(0) if len(self._listings) > 1 else self._listings[0]
        if listing is None:
            raise NoScheduler("no scheduler is connected")
        return listing

    def cut_off_s(self) -> float:
        return self.away_s

    def is_denied(self) -> bool:
        return self.denied

    def why_cut_off(self) -> str:
        return "scheduler 10.0.0.1:1 cannot be reached"

    def wait(self, needed: int = 1, timeout_s: float = 3600.0, is_over: Callable[[float], bool] | None = None) -> int:
        client: Any = self
        return wait_for_slots(client, needed, timeout_s, is_over or self._pause, self.shown.append, self._now)

    def _now(self) -> float:
        return self.waited_s

    def _pause(self, seconds: float) -> bool:
        self.waited_s += seconds
        return False


def test_slots_that_are_there_are_not_waited_for() -> None:
    cluster = Cluster([READY, NodeStatus("m", 3, apps=APPS), NodeStatus("o", 4, "draining", apps=APPS)])
    assert cluster.wait(needed=5) == 5 and not cluster.shown


def test_a_node_that_is_started_again_is_waited_for_and_the_line_says_so() -> None:
    starting = NodeStatus("n", 2, apps={"python": "3.11"})
    cluster = Cluster([NodeStatus("n", 2, "draining", apps=APPS)], [], None, [starting], [READY])
    assert cluster.wait() == 2 and cluster.waited_s == 4 * LOOK_EVERY_S
    assert cluster.shown == [
        "1 worker is needed, and nodes that run app dataflow have 0 slots (n is draining)",
        "1 worker is needed, and nodes that run app dataflow have 0 slots (no node is connected)",
        "1 worker is needed, and no scheduler is connected",
        "1 worker is needed, and nodes that run app dataflow have 0 slots (n does not run app dataflow)",
    ]


def test_too_few_slots_in_the_end_are_an_error_that_says_which_nodes_have_some() -> None:
    many = [NodeStatus(f"n{number}", 0, apps=APPS) for number in range(NODES_SHOWN + 2)]
    with pytest.raises(InvalidProgram) as caught:
        Cluster([READY, *many]).wait(needed=3, timeout_s=0.0)
    assert str(caught.value) == (
        "min_workers: 3 workers are needed, and nodes that run app dataflow have 2 slots "
        "(n has 2, n0 has 0, n1 has 0, n2 has 0, n3 has 0, and 3 more) after start_timeout_s = 0 s"
    )


def test_schedulers_that_stay_away_are_an_error_that_names_them() -> None:
    cluster = Cluster(None)
    with pytest.raises(NoScheduler, match=r"1 worker is needed, and no scheduler is connected after start_timeout_s"):
        cluster.wait(timeout_s=0.0)
    cluster.away_s = 3 * UNREACHABLE_S
    with pytest.raises(NoScheduler, match=r"no scheduler has been reached for 10 s: scheduler 10.0.0.1:1 cannot"):
        cluster.wait()
    assert cluster.waited_s == UNREACHABLE_S, "the client is given time to dial again"


def test_a_client_that_is_refused_waits_for_nothing() -> None:
    cluster = Cluster(None)
    cluster.denied = True
    with pytest.raises(NoScheduler, match=r"no scheduler takes this client: scheduler 10.0.0.1:1"):
        cluster.wait()
    assert not cluster.waited_s


def test_a_scheduler_that_is_back_is_found_though_the_client_was_cut_off_for_long() -> None:
    cluster = Cluster(*[None] * 20, [READY])
    cluster.away_s = 3 * UNREACHABLE_S
    assert cluster.wait() == 2 and cluster.waited_s == 20 * LOOK_EVERY_S < UNREACHABLE_S


def test_a_dataflow_that_is_closed_waits_no_longer() -> None:
    with pytest.raises(RunLost, match="the Dataflow was closed"):
        Cluster([]).wait(is_over=lambda seconds: True)
