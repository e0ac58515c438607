"""The node monitor's pure core, exchange by exchange; for whole clusters see `tests/scheduler/`."""

from __future__ import annotations

import pytest

from sparrow_py.executors import executor_protocol as x
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve


def test_the_payload_is_opaque_its_user_is_named_and_the_common_bytes_go_once_to_each_executor() -> None:
    rig = NodeCore(2)
    rig.receive(reserve(1, 3, app="pool"), m.Common("j1", 0, b"f"))
    rig.launches(1, 2, ask=1)
    assert [(to, type(message)) for to, message in rig.outbox.sent if to[0] == "p"] == [
        ("p1", x.Common), ("p1", x.Run), ("p0", x.Common), ("p0", x.Run),
    ]  # fmt: skip
    assert [(run.payload, run.user) for run in rig.take(x.Run)] == [(b"payload 1", "anna"), (b"payload 2", "anna")]
    rig.take(x.Common)
    rig.done("p0", 2)
    rig.launches(3, ask=2)
    assert not rig.take(x.Common) and len(rig.take(x.Run)) == 1


def test_a_launch_that_comes_twice_is_run_once_and_not_handed_back() -> None:
    """Handed back, it would be started elsewhere while it runs here."""
    rig = NodeCore(2)
    rig.receive(reserve(1, 2, app="pool"))
    rig.launches(1, 1, ask=1)  # The ask was for two tasks: there is room for the second.
    assert len(rig.take(x.Run)) == 1 and not rig.take(m.HandBack)
    rig.launches(2, ask=1)
    rig.launches(1, 2, ask=1)  # There is nothing left of the ask.
    assert len(rig.take(x.Run)) == 1 and not rig.take(m.HandBack)
    rig.done("p1", 1)
    rig.launches(1, ask=1)
    assert not rig.take(x.Run) and not rig.take(m.HandBack)


def test_after_a_new_link_launches_are_counted_anew() -> None:
    """A process of the same name, say, that has started again."""
    rig = NodeCore(2)
    rig.receive(reserve(1, app="pool"))
    rig.launches(5, ask=1)
    rig.core.scheduler_down("s", 0.0)
    rig.core.scheduler_up("s")
    rig.receive(reserve(2, app="pool"))
    rig.launches(1, ask=2)
    assert len(rig.take(x.Run)) == 2


@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_task_that_comes_when_all_executors_died_is_handed_back(prefetch: int) -> None:
    """It may take long until others start, if ever."""
    rig = NodeCore()
    rig.receive(reserve(1, 3, app="pool", prefetch=prefetch))
    asks = rig.take(m.GetTasks)
    rig.core.executor_down("p0", "p0 was killed", 0.0)
    for number, ask in enumerate(asks):
        rig.launches(number, ask=ask.ask)
    assert [back.attempt for back in rig.take(m.HandBack)] == list(range(len(asks)))
    assert rig.core.idle and rig.core.free_slots == 1


def test_a_scheduler_that_is_lost_leaves_nothing_behind() -> None:
    rig = NodeCore(2)
    rig.receive(reserve(1, 9, app="pool", prefetch=2), m.Common("j1", 0, b"f"))
    rig.launches(1, ask=1)
    rig.core.scheduler_down("s", 0.0)
    rig.settle()
    assert len(rig.core.queue) == 0 and rig.core.free_slots == 1 and not rig.core.asks.open
    rig.take(m.Report)
    rig.done("p1", 1)
    assert rig.core.free_slots == 2 and not rig.core.jobs.by_key and rig.core.idle


def test_a_draining_node_says_so_to_schedulers_that_come_later() -> None:
    rig = NodeCore()
    rig.receive(reserve(1, 3, app="pool"))
    rig.core.drain(0.0)
    rig.core.scheduler_up("t")
    rig.receive(reserve(2, 3, app="pool"))
    assert [to for to, _ in rig.outbox.take(m.NodeState)] == ["s", "t"]
    assert len(rig.core.queue) == 0 and rig.core.free_slots == 1
