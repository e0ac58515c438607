"""Slots and resources: what is free, what tasks with a demand take, and what comes back."""

from __future__ import annotations

import pytest

from node_monitor.queueing.tickets import Charge, QueuedTicket
from node_monitor.slots import Slots
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from tests.support.node_core import OneJob


def test_tasks_with_a_demand_are_asked_for_as_far_as_they_fit() -> None:
    rig = OneJob(4, cpu=2.0)
    (ask,) = rig.reserve(1, 3, demand={"cpu": 0.8})
    assert ask.count == 2 and ask.free == {"cpu": pytest.approx(2.0)}
    (other,) = rig.reserve(2, 5)  # Slots are left, for those that take nothing.
    assert other.count == 2 and other.free is None


def test_what_is_taken_comes_back_when_the_task_ends_is_not_there_or_is_handed_back() -> None:
    rig = OneJob(2, cpu=1.0)
    (ask,) = rig.reserve(1, 3, demand={"cpu": 1.0})
    rig.receive(m.NoTask(ask.ask, 1))
    (ask,) = rig.take(m.GetTasks)
    rig.launch(1, ask.ask)
    assert rig.core.free == {"cpu": 0.0} and not rig.take(m.GetTasks)
    rig.done("p1", 1)
    assert len(rig.take(m.GetTasks)) == 1
    rig.tick(1.0)  # The ask is not answered.
    assert rig.core.free == {"cpu": 1.0}


def test_fractions_do_not_add_up_to_too_little() -> None:
    """0.3 - 0.1 - 0.1 is less than 0.1 in binary floating point."""
    rig = OneJob(8, cpu=0.3)
    (ask,) = rig.reserve(1, 3, demand={"cpu": 0.1})
    assert ask.count == 3
    rig.receive(m.NoTask(ask.ask, 3))
    (ask,) = rig.reserve(2, 1, demand={"cpu": 0.3})
    assert ask.count == 1


def test_a_resource_that_the_node_does_not_have_is_never_free() -> None:
    rig = OneJob(2, cpu=2.0)
    assert not rig.reserve(1, demand={"gpu": 1.0})
    assert rig.reserve(2, demand={"gpu": 0.0})


@pytest.mark.parametrize("amount", [-1.0, float("nan"), float("inf")])
def test_a_bad_demand_breaks_the_link(amount: float) -> None:
    with pytest.raises(LinkError, match="bad reservation"):
        OneJob(cpu=1.0).reserve(1, demand={"cpu": amount})


def charge(**demand: float) -> Charge:
    return Charge(QueuedTicket(("s", 1), "j", "anna", 1.0, demand=demand or None), 0.0)


def test_slots_ask_for_what_is_set_aside_for_them_besides_what_is_free() -> None:
    slots = Slots(4, {"cpu": 1.0})
    slots.take_resources(charge(cpu=0.25))
    slots.take_resources(charge(cpu=0.25))
    assert slots.free_for(2, {"cpu": 0.25, "gpu": 0.0}) == {"cpu": 1.0, "gpu": 0.0}


def test_what_fits_exactly_fits() -> None:
    slots = Slots(1, {"cpu": 1.0})
    assert slots.fits({"cpu": 1.0}) and slots.fits({}) and not slots.fits({"cpu": 1.001})


@pytest.mark.parametrize(
    ("free", "busy", "asking", "taken", "problem"),
    [
        (2, 1, 1, 0.0, None),
        (2, 1, 0, 0.0, "2 free + 1 busy + 0 asking slots are not 4"),
        (-1, 4, 1, 0.0, "-1 free slots"),
        (2, 1, 1, 0.5, "1.0 free and 0.5 taken of 1.0 cpu"),
    ],
)
def test_what_does_not_add_up_is_said(free: int, busy: int, asking: int, taken: float, problem: str | None) -> None:
    slots = Slots(4, {"cpu": 1.0})
    slots.free = free
    assert slots.problem([charge(cpu=taken)], busy, asking) == problem
