"""Which of a user's waiting stages is served first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.options import SchedulerOptions
from scheduler.sampling.order import DURATION_DEFAULT_S, ShortestFirst, work_s
from sparrow_py.errors import InvalidOption
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig


class TestShortestFirst:
    def test_nobody_waits(self) -> None:
        waiting = ShortestFirst[str](10)
        assert waiting.first() is None
        waiting.put("a", 1.0)
        waiting.remove("a")
        waiting.remove("b")
        assert waiting.first() is None
        assert len(waiting) == 0

    def test_least_work_goes_first(self) -> None:
        waiting = ShortestFirst[str](10)
        for item, work in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
            waiting.put(item, work)
        assert waiting.first() == "b"
        waiting.put("b", 2.5)
        assert waiting.first() == "c"
        waiting.remove("c")
        assert waiting.first() == "b"

    def test_ties_go_to_who_waits_for_longest(self) -> None:
        waiting = ShortestFirst[str](10)
        waiting.put("b", 2.0)
        waiting.put("a", 1.0)
        waiting.put("a", 2.0)
        assert waiting.first() == "b"

    def test_one_that_was_overtaken_by_more_tasks_than_allowed_goes_first_until_it_is_served(self) -> None:
        waiting = ShortestFirst[str](3)
        waiting.put("long", 100.0)
        waiting.put("short", 5.0)
        waiting.served("short", 3, 2.0)
        assert waiting.first() == "short"
        waiting.remove("short")
        waiting.put("shorter", 1.0)
        assert waiting.first() == "shorter"
        waiting.served("shorter", 1, 1.0)
        assert waiting.first() == "long"
        waiting.served("long", 50, 50.0)
        assert waiting.first() == "long"
        waiting.remove("long")
        assert waiting.first() == "shorter"

    def test_who_goes_and_comes_back_is_the_last_in_line(self) -> None:
        waiting = ShortestFirst[str](0)
        waiting.put("a", 9.0)
        waiting.put("b", 5.0)
        waiting.remove("a")
        waiting.put("a", 1.0)
        waiting.served("a", 1, 1.0)
        assert waiting.first() == "b"

    @given(
        st.integers(0, 6),
        st.lists(
            st.one_of(
                st.tuples(st.just("put"), st.integers(0, 5), st.integers(0, 4)),
                st.tuples(st.just("remove"), st.integers(0, 5), st.just(0)),
                st.tuples(st.just("served"), st.integers(0, 5), st.integers(1, 3)),
                st.tuples(st.just("serve first"), st.just(0), st.integers(1, 3)),
            ),
            max_size=60,
        ),
    )
    def test_it_does_what_a_count_of_every_overtaking_says(
        self, overtaken_max: int, events: list[tuple[str, int, int]]
    ) -> None:
        waiting = ShortestFirst[int](overtaken_max)
        naive: dict[int, tuple[int, int]] = {}
        """Item to its work and by how many tasks it was overtaken, in order of arrival."""
        for what, item, number in events:
            served = waiting.first() if what == "serve first" else item
            if what == "put":
                waiting.put(item, number)
                naive[item] = (number, naive[item][1] if item in naive else 0)
            elif what == "remove":
                waiting.remove(item)
                naive.pop(item, None)
            elif served in naive:
                work = max(0, naive[served][0] - number)
                waiting.served(served, number, work)
                naive[served] = (work, naive[served][1])
                for earlier in list(naive)[: list(naive).index(served)]:
                    naive[earlier] = (naive[earlier][0], naive[earlier][1] + number)
            overtaken = [item for item, (_, count) in naive.items() if count > overtaken_max]
            expected = overtaken[0] if overtaken else min(naive, key=lambda item: naive[item][0], default=None)
            assert waiting.first() == expected
            assert len(waiting) == len(naive)
            # Who began to wait earlier was overtaken by as many at least: the first in line is the one to look at.
            counts = [count for _, count in naive.values()]
            assert counts == sorted(counts, reverse=True)

    def test_what_is_superseded_does_not_pile_up(self) -> None:
        waiting = ShortestFirst[int](1 << 60)
        waiting.put(0, 1e9)
        for item in range(1, 5000):
            waiting.put(item, item)
            waiting.put(item, item + 0.5)
            waiting.served(item, 1, item)
            waiting.remove(item)
        assert len(waiting._heap) < 200
        assert len(waiting._line) < 200


def test_work_is_tasks_times_what_the_job_says_they_last() -> None:
    assert work_s(3, 2.0) == 6.0
    assert work_s(3, None) == 3 * DURATION_DEFAULT_S
    assert work_s(3, 0.0) == 0.0


@pytest.mark.parametrize(("name", "value"), [("order", "youngest"), ("overtaken_max", -1)])
def test_bad_options(name: str, value: object) -> None:
    with pytest.raises(InvalidOption, match=name):
        SchedulerOptions(**{name: value})


class Scheduler(SchedulerRig):
    """A core with one node, and jobs of one user that wait for it."""

    def __init__(self, nodes: int = 1, **options: Any) -> None:
        super().__init__([f"n{number}" for number in range(nodes)], history_len_max=1000, **options)
        self.tickets: dict[str, int] = {}
        self._ask = 0

    def submit(self, job: str, tasks: int, **fields: Any) -> None:
        self.submit_job(tasks, job=job, **fields)
        for reserve in self.take(m.Reserve):
            self.tickets.setdefault(reserve.job, reserve.ticket)

    def ask(self, job: str, count: int = 1, node: str = "n0") -> list[str]:
        """The node asks with a reservation of the job; the jobs whose tasks it gets."""
        self._ask += 1
        self.node(node, m.GetTasks(self._ask, self.tickets[job], count))
        return [launch.job for launch in self.take(m.Launch)]


@pytest.mark.parametrize(("order", "served"), [("reserved", "c"), ("oldest", "a"), ("shortest", "b")])
def test_an_ask_gets_a_task_of_the_stage_that_is_first_in_order(order: str, served: str) -> None:
    scheduler = Scheduler(order=order)
    scheduler.submit("a", 5)
    scheduler.submit("b", 2)
    scheduler.submit("c", 3)
    assert scheduler.ask("c") == [served]


class TestShortest:
    def test_an_ask_for_several_goes_on_with_the_next(self) -> None:
        scheduler = Scheduler(order="shortest")
        scheduler.submit("a", 5)
        scheduler.submit("b", 2)
        scheduler.submit("c", 3)
        assert scheduler.ask("a", 7) == ["b", "b", "c", "c", "c", "a", "a"]

    def test_stated_durations_count(self) -> None:
        scheduler = Scheduler(order="shortest")
        scheduler.submit("a", 2, expected_duration_s=10.0)
        scheduler.submit("b", 5, expected_duration_s=1.0)
        assert scheduler.ask("a") == ["b"]

    def test_an_overtaken_job_goes_first(self) -> None:
        scheduler = Scheduler(order="shortest", overtaken_max=2)
        scheduler.submit("long", 9)
        scheduler.submit("short", 5)
        assert [scheduler.ask("long") for _ in range(5)] == [["short"], ["short"], ["short"], ["long"], ["long"]]

    def test_other_kinds_and_other_users_jobs_are_not_served(self) -> None:
        scheduler = Scheduler(order="shortest")
        scheduler.submit("a", 3)
        scheduler.submit("b", 1, prefetch=4)
        assert scheduler.ask("a") == ["a"]

    def test_cancelled_tasks_are_no_work(self) -> None:
        scheduler = Scheduler(order="shortest")
        scheduler.submit("a", 5)
        scheduler.submit("b", 3)
        scheduler.client(m.CancelTasks("a", [0, 1, 2]))
        assert scheduler.ask("b") == ["a"]

    def test_a_lost_task_is_work_again(self) -> None:
        scheduler = Scheduler(order="shortest")
        scheduler.submit("a", 1)
        assert scheduler.ask("a") == ["a"]
        scheduler.submit("b", 2)
        attempt = next(iter(scheduler.core.jobs["a"].attempts))
        scheduler.node("n0", m.Report("a", 0, attempt, TaskStatus.LOST, b"", "gone", None, None))
        scheduler.core.check_invariants()
        assert scheduler.ask("b") == ["a"]

    def test_a_job_that_avoids_others_does_not_hold_up_the_rest(self) -> None:
        scheduler = Scheduler(nodes=2, order="shortest")
        scheduler.submit("a", 2)
        assert scheduler.ask("a") == ["a"]
        scheduler.submit("b", 1, avoid=["a"])
        scheduler.submit("c", 3)
        assert scheduler.ask("c") == ["c"]

    def test_nothing_is_left_when_all_is_placed(self) -> None:
        scheduler = Scheduler(order="shortest")
        scheduler.submit("a", 1)
        scheduler.submit("b", 1)
        assert scheduler.ask("a", 2) == ["a", "b"]
        assert scheduler.core.plane.turns.by_work == {}
