"""The probe ratio at the present load."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.options import SchedulerOptions
from scheduler.sampling.adaptive import GAIN, AdaptiveRatio
from sparrow_py.errors import InvalidOption
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, node_info

NODES = 100
RTT_S = 0.001


class TestAdaptiveRatio:
    def test_nothing_seen_is_no_reason_to_change(self) -> None:
        adaptive = AdaptiveRatio(6.0)
        assert adaptive.ratio(2.0) == 2.0
        adaptive.waited(5.0, 3)
        assert adaptive.ratio(2.0) == 2.0

    def test_the_network_is_no_load(self) -> None:
        adaptive = AdaptiveRatio(6.0)
        for _ in range(1000):
            adaptive.waited(RTT_S, 1)
            adaptive.ran(RTT_S)
        assert adaptive.ratio(2.0) == 2.0

    @pytest.mark.parametrize(("wait_s", "expected"), [(0.0, 2.0), (0.05, 4.0), (0.1, 6.0), (10.0, 6.0)])
    def test_it_rises_with_the_time_that_tasks_wait_over_the_time_that_they_run(
        self, wait_s: float, expected: float
    ) -> None:
        adaptive = AdaptiveRatio(6.0)
        adaptive.waited(RTT_S, 1)
        for _ in range(2000):
            adaptive.waited(RTT_S + wait_s, 1)
            adaptive.ran(0.1)
        assert adaptive.ratio(2.0) == pytest.approx(expected, rel=1e-6)

    def test_it_falls_when_they_do_not_wait_any_more(self) -> None:
        adaptive = AdaptiveRatio(6.0)
        adaptive.waited(RTT_S, 1)
        adaptive.ran(0.1)
        adaptive.waited(1.0, 500)
        assert adaptive.ratio(2.0) == 6.0
        adaptive.waited(RTT_S, 2000)
        assert adaptive.ratio(2.0) == pytest.approx(2.0, abs=1e-6)

    def test_tasks_bound_together_count_as_many(self) -> None:
        together, apart = AdaptiveRatio(6.0), AdaptiveRatio(6.0)
        for one in (together, apart):
            one.ran(1.0)
            one.waited(0.0, 1)
        together.waited(0.3, 50)
        for _ in range(50):
            apart.waited(0.3, 1)
        assert together.waiting == pytest.approx(apart.waiting)
        assert together.waiting == pytest.approx(0.3 * (1 - (1 - GAIN) ** 50))

    def test_tasks_of_no_duration_at_all(self) -> None:
        adaptive = AdaptiveRatio(6.0)
        adaptive.ran(0.0)
        adaptive.waited(0.0, 1)
        assert adaptive.ratio(2.0) == 2.0
        adaptive.waited(1.0, 1)
        assert adaptive.ratio(2.0) == 6.0

    @given(
        st.floats(0, 1000),
        st.floats(1, 1000),
        st.lists(
            st.one_of(
                st.tuples(st.just("waited"), st.floats(0, 1e9), st.integers(1, 1000)),
                st.tuples(st.just("ran"), st.floats(0, 1e9), st.just(1)),
            ),
            max_size=50,
        ),
    )
    def test_it_is_never_below_the_jobs_own_nor_above_both(
        self, ratio_max: float, own: float, events: list[tuple[str, float, int]]
    ) -> None:
        adaptive = AdaptiveRatio(ratio_max)
        for what, seconds, tasks in events:
            if what == "ran":
                adaptive.ran(seconds)
            else:
                adaptive.waited(seconds, tasks)
            assert 0.0 <= adaptive.waiting <= 1.0
            assert own <= adaptive.ratio(own) <= max(own, ratio_max)


@pytest.mark.parametrize("value", [-1.0, 0.5, 0.999, 1001.0, float("nan")])
def test_bad_options(value: float) -> None:
    with pytest.raises(InvalidOption, match=r"probe_ratio_max: .* 0 for never, or a number from 1 to 1000"):
        SchedulerOptions(probe_ratio_max=value)


@pytest.mark.parametrize("value", [0.0, 1.0, 1000.0])
def test_options_that_may_be(value: float) -> None:
    assert SchedulerOptions(probe_ratio_max=value).probe_ratio_max == value


class Scheduler(SchedulerRig):
    """A core with nodes that ask when the test says so."""

    def __init__(self, **options: Any) -> None:
        super().__init__({f"n{number}": node_info(1) for number in range(NODES)}, **options)
        self._ask = 0

    def submit(self, job: str, tasks: int, now_s: float) -> list[tuple[str, m.Reserve]]:
        """Its reservations."""
        self.submit_job(tasks, job=job, now_s=now_s, probe_ratio=2.0)
        return self.outbox.take(m.Reserve)

    def run(self, job: str, wait_s: float, at_s: float) -> None:
        """A job of ten tasks, each of which waits so long and runs 0.1 s."""
        for node, reserve in self.submit(job, 10, at_s):
            self._ask += 1
            self.node(node, m.GetTasks(self._ask, reserve.ticket, 1), now_s=at_s + wait_s)
            for launch in self.take(m.Launch):
                report = m.Report(job, launch.task, launch.attempt, TaskStatus.FINISHED, b"", "", at_s + wait_s, 0.1)
                self.node(node, report, now_s=at_s + wait_s + 0.1)
        self.outbox.sent.clear()


class TestInTheCore:
    def test_jobs_probe_more_nodes_when_tasks_wait(self) -> None:
        scheduler = Scheduler(probe_ratio_max=6.0)
        scheduler.run("quick", RTT_S, 0.0)
        assert len(scheduler.submit("a", 10, 1.0)) == 20
        for number in range(100):
            scheduler.run(f"slow{number}", 1.0, 2.0 + 2 * number)
        assert len(scheduler.submit("b", 10, 1000.0)) == 60

    def test_not_if_it_is_off(self) -> None:
        scheduler = Scheduler()
        for number in range(20):
            scheduler.run(f"slow{number}", 1.0, 2.0 * number)
        assert scheduler.core.plane.adaptive is None
        assert len(scheduler.submit("b", 10, 1000.0)) == 20

    def test_a_stage_keeps_the_ratio_with_which_it_first_probed(self) -> None:
        scheduler = Scheduler(probe_ratio_max=6.0, probe_sharing=False, order="reserved")
        scheduler.run("quick", RTT_S, 0.0)
        assert len(scheduler.submit("a", 10, 1.0)) == 20
        for number in range(100):
            scheduler.run(f"slow{number}", 1.0, 2.0 + 2 * number)
        node = next(iter(scheduler.core.jobs["a"].stages[0].plan.own_ticket.live))
        scheduler.core.node_down(node, 999.0)
        scheduler.core.check_invariants()
        assert len(scheduler.outbox.take(m.Reserve)) == 1
