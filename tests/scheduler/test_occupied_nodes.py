"""Nodes whose slots placed tasks hold are probed less, and those that have none left not at all."""

from __future__ import annotations

from typing import Any

import pytest

from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, node_info


class Rig(SchedulerRig):
    """A scheduler that samples among 40 nodes of 4 slots."""

    def __init__(self, nodes: int = 40, **options: Any) -> None:
        super().__init__([f"n{number}" for number in range(nodes)], **options)

    def probed(self, job: str, tasks: int = 1, **fields: object) -> set[str]:
        """Where there are reservations for a job of so many tasks."""
        self.submit_job(tasks, job=job, **fields)
        return set(self.reserves())

    def occupy(self, slots: int, *nodes: int) -> None:
        for number in nodes:
            self.node(f"n{number}", m.Occupied(slots))


def test_nodes_that_have_no_slot_left_are_not_probed() -> None:
    rig = Rig()
    rig.occupy(4, *range(5, 40))
    for job in range(20):
        assert rig.probed(f"j{job}") <= {f"n{number}" for number in range(5)}
    assert rig.probed("large", 10) == {f"n{number}" for number in range(5)}


def test_if_no_other_is_eligible_they_are_probed_as_ever() -> None:
    rig = Rig(2)
    rig.occupy(4, 0, 1)
    assert rig.probed("j") == {"n0", "n1"}


def test_a_node_that_is_half_occupied_is_probed_half_as_often() -> None:
    rig = Rig()
    rig.occupy(2, *range(20))
    probed: list[str] = []
    for job in range(600):
        probed += rig.probed(f"j{job}")
        rig.client(m.CancelJob(f"j{job}"))  # Else what is checked after each event would grow with the jobs.
    assert len(probed) == 1200 and not rig.core.jobs
    half = sum(int(node[1:]) < 20 for node in probed)
    assert 0.28 < half / len(probed) < 0.38


def test_once_it_is_not_occupied_any_more_a_node_is_probed_as_ever() -> None:
    rig = Rig(3)
    rig.occupy(4, 0)
    assert "n0" not in rig.probed("j1")
    rig.occupy(0, 0)
    assert rig.core.nodes.occupied == {} and rig.probed("j2", 3) == {"n0", "n1", "n2"}


def test_a_node_that_goes_or_has_fewer_slots_is_counted_right() -> None:
    rig = Rig(3)
    rig.occupy(4, 0, 1)
    rig.node("n0", m.NodeChanged(node_info(2)))
    assert (rig.core.nodes["n0"].occupied, rig.core.nodes.occupied["n0"]) == (2, 1.0)
    rig.node_down("n1")
    rig.node_up("n1")
    assert rig.core.nodes["n1"].occupied == 0 and set(rig.core.nodes.occupied) == {"n0"}


def test_an_idle_node_is_probed_however_occupied_it_is() -> None:
    """It has said just now that it has a free slot."""
    rig = Rig(push_to_idle=False)
    rig.occupy(3, *range(40))
    rig.node("n7", m.Idle(1))
    assert "n7" in rig.probed("j")


@pytest.mark.parametrize("full", [True, False])
def test_a_task_with_preferred_nodes_is_reserved_at_those_with_room_if_there_are_any(full: bool) -> None:
    rig = Rig(5)
    rig.occupy(4, 0, *([1] if full else []))
    detail = {0: m.TaskDetail(("n0", "n1"))}
    assert rig.probed("j", 1, details=detail, local=True) == ({"n0", "n1"} if full else {"n1"})
    rig.occupy(4, 1, 2, 3)
    assert rig.probed("mixed", 3, details=detail, local=True) >= {"n4"}


def test_what_nodes_say_of_that_finds_nothing_anew() -> None:
    rig = Rig()
    rig.probed("j")
    (before,) = rig.core.nodes._eligible.values()
    rig.occupy(3, *range(40))
    (after,) = rig.core.nodes._eligible.values()
    assert after is before
