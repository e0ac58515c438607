"""What a node tells its schedulers of itself: cordon, drain, and when a node has drained."""

from __future__ import annotations

from sparrow_py.wire import messages as m
from tests.support.node_core import OneJob, far


def test_a_cordoned_node_serves_what_is_queued_and_says_so() -> None:
    rig = OneJob()
    rig.reserve(1, 2)
    rig.core.cordon(0.0)
    assert [state.state for state in rig.take(m.NodeState)] == [m.CORDONED]
    rig.launch(1, 1)
    rig.done("p0", 1)
    assert len(rig.take(m.GetTasks)) == 1
    rig.core.uncordon(0.0)
    assert [state.state for state in rig.take(m.NodeState)] == [m.READY]


def test_a_draining_node_hands_back_what_has_not_started_and_what_runs_goes_on() -> None:
    rig = OneJob(2)
    rig.reserve(1, 3)
    rig.launch(1, 1)
    rig.launch(2, 1, far("f"))
    rig.core.drain(0.0)
    rig.settle()
    assert [back.attempt for back in rig.take(m.HandBack)] == [2] and len(rig.core.queue) == 0
    rig.core.cordon(0.0)  # It goes on draining.
    assert [state.state for state in rig.take(m.NodeState)] == [m.DRAINING]
    rig.done("p1", 1)
    assert rig.core.idle and not rig.take(m.GetTasks)


def test_a_node_has_drained_once_all_its_schedulers_know() -> None:
    """Until then tasks may be on their way: if the node had ended by the time that they came, they would count as
    started."""
    rig = OneJob(2)
    for scheduler in "tu":
        rig.core.scheduler_up(scheduler)
    rig.reserve(1, 2)
    rig.core.drain(0.0)
    rig.launch(1, 1)
    assert [back.attempt for back in rig.take(m.HandBack)] == [1]
    rig.receive(m.DrainingKnown())
    rig.core.receive("t", m.DrainingKnown(), 0.0)
    assert rig.core.idle and not rig.core.drained
    rig.core.scheduler_down("u", 0.0)
    assert rig.core.drained
    rig.core.scheduler_up("late")
    assert not rig.core.drained
    rig.core.receive("late", m.DrainingKnown(), 0.0)
    assert rig.core.drained


def test_answers_to_an_earlier_drain_do_not_count_for_a_later_one() -> None:
    rig = OneJob()
    rig.core.drain(0.0)
    rig.core.uncordon(0.0)
    rig.core.drain(0.0)
    rig.receive(m.DrainingKnown())
    assert not rig.core.drained
    rig.receive(m.DrainingKnown())
    assert rig.core.drained


def test_a_node_that_takes_part_again_has_not_drained() -> None:
    rig = OneJob()
    rig.core.drain(0.0)
    rig.receive(m.DrainingKnown())
    rig.core.uncordon(0.0)
    assert rig.core.idle and not rig.core.drained
