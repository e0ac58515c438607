"""Late binding: an ask becomes as many tasks as there are, fit and may run at the node; the rest are no-ops."""

from __future__ import annotations

import math

import pytest

from scheduler.book.waiting import BACKOFF_MAX_S
from scheduler.sampling.binding import FITTING_MAX, ROUNDING, fitting
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, node_info


@pytest.mark.parametrize(
    ("demand", "free", "count"),
    [
        ({}, {}, FITTING_MAX),
        ({"gpu": 1.0}, {"gpu": 2.5}, 2),
        ({"gpu": 1.0}, {}, 0),
        ({"gpu": 0.0}, {}, FITTING_MAX),
        ({"gpu": 1.0, "cpu": 0.5}, {"gpu": 3.0, "cpu": 1.0}, 2),
        ({"gpu": 0.1}, {"gpu": 0.1 + 0.1 + 0.1}, 3),
        ({"gpu": 0.1}, {"gpu": 0.3 - 0.3 * ROUNDING / 10}, 3),
        ({"gpu": 1.0}, {"gpu": math.inf}, FITTING_MAX),
        ({"gpu": 1.0}, {"gpu": math.nan}, 0),
        ({"gpu": 1.0}, {"gpu": -5.0}, 0),
    ],
    ids=str,
)
def test_so_many_tasks_fit_what_is_free(demand: dict[str, float], free: dict[str, float], count: int) -> None:
    assert fitting(demand.items(), free) == count


def asked(rig: SchedulerRig, node: str, count: int, free: dict[str, float] | None = None) -> tuple[list[int], int]:
    """(tasks, no-ops) of the answer to an ask under the node's last reservation."""
    ticket = max(message.ticket for to, message in rig.outbox.sent if isinstance(message, m.Reserve) and to == node)
    rig.node(node, m.GetTasks(1, ticket, count, free))
    return [launch.task for launch in rig.take(m.Launch)], sum(noop.count for noop in rig.take(m.NoTask))


@pytest.mark.parametrize(("slots", "expected"), [(2, ([0, 1], 0)), (3, ([0, 1, 2], 0)), (5, ([0, 1, 2], 2))])
def test_an_ask_is_answered_for_each_of_its_slots(slots: int, expected: tuple[list[int], int]) -> None:
    rig = SchedulerRig("n")
    rig.submit_job(3)
    assert asked(rig, "n", slots) == expected
    assert (rig.core.counters.asks, rig.core.counters.noops) == (1, expected[1])


def test_no_more_tasks_are_bound_than_fit_and_the_node_is_left_alone_for_a_while() -> None:
    rig = SchedulerRig({"n": node_info(resources={"gpu": 4.0})})
    rig.submit_job(4, demand={"gpu": 1.0})
    assert asked(rig, "n", 4, {"gpu": 2.0}) == ([0, 1], 2)
    assert rig.core.jobs["j"].stages[0].search.refused_by == {"n"}


def test_a_node_where_nothing_fitted_gets_its_share_again_after_a_while() -> None:
    """Since then it may have room, and the other nodes be busy for long."""
    rig = SchedulerRig({name: node_info(resources={"gpu": 4.0}) for name in ("n", "other")})
    rig.submit_job(1, demand={"gpu": 1.0})
    reserves = rig.reserves()
    rig.node("n", m.GetTasks(1, reserves["n"].ticket, 1, {"gpu": 0.5}))
    assert set(rig.reserves()) == {"other"}
    rig.tick(BACKOFF_MAX_S)
    assert set(rig.reserves()) == {"n"}


def test_an_ask_under_a_ticket_that_nobody_has_gets_no_ops() -> None:
    rig = SchedulerRig("n")
    rig.submit_job(1)
    rig.node("n", m.GetTasks(7, 999, 3))
    assert rig.take(m.NoTask) == [m.NoTask(7, 3)] and not rig.take(m.Launch)


@pytest.mark.parametrize("count", [0, -1])
def test_an_ask_for_nothing_breaks_the_link(count: int) -> None:
    rig = SchedulerRig("n")
    rig.submit_job(1)
    with pytest.raises(LinkError, match=f"node n takes {count} reservations"):
        asked(rig, "n", count)


@pytest.mark.parametrize(
    ("order", "jobs"), [("oldest", ["old", "old", "young"]), ("shortest", ["young", "old", "old"])]
)
def test_whose_reservation_led_to_the_ask_does_not_matter_to_a_users_stages_of_one_kind(
    order: str, jobs: list[str]
) -> None:
    rig = SchedulerRig("n", order=order)
    rig.submit_job(2, job="old", now_s=0.0)
    rig.submit_job(1, job="young", now_s=1.0)
    ticket = rig.outbox.take(m.Reserve)[-1][1].ticket
    rig.node("n", m.GetTasks(1, ticket, 3), now_s=2.0)
    assert [launch.job for launch in rig.take(m.Launch)] == jobs


def test_with_the_order_reserved_an_ask_is_for_the_job_that_made_the_reservation() -> None:
    rig = SchedulerRig("n", order="reserved")
    rig.submit_job(2, job="old", now_s=0.0)
    rig.submit_job(1, job="young", now_s=1.0)
    ticket = rig.outbox.take(m.Reserve)[-1][1].ticket
    rig.node("n", m.GetTasks(1, ticket, 3), now_s=2.0)
    assert [launch.job for launch in rig.take(m.Launch)] == ["young"] and rig.take(m.NoTask) == [m.NoTask(1, 2)]
