"""What a scheduler remembers of the last hour and of jobs, as its core lives through them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.recent import gone_jobs, timeline
from scheduler.recent.gone_jobs import AGE_S_MAX, GoneJob, GoneJobs
from scheduler.recent.held_slots import fair_slots
from scheduler.recent.hour import SPAN_BYTES_MAX, SPAN_S, SPANS_MAX, Hour
from scheduler.recent.recent import Recent
from scheduler.recent.samples import SAMPLES_MAX, Samples
from sparrow_py.job import NAME_BYTES_MAX
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, StagedRig


class WatchedRig(StagedRig):
    """A core whose driver remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.recent = Recent(self.core, 0.0)
        self.core.register.job_gone = self.recent.job_gone

    def said(self, node: str, message: object) -> None:
        """As the driver does."""
        if isinstance(message, m.Report) and self.recent.tasks.left > 0 and self.recent.tasks.add(node, message):
            self.recent.look_closely(message)

    def shown(self, now_s: float) -> timeline.JobTimeline:
        """The timeline of the job, which is here or gone."""
        gone = self.recent.gone.get("j")
        walk = timeline.Walk(self.recent.tasks, self.recent.tasks.latest("j") if gone is None else gone.place)
        while walk.goes_on():
            pass
        if gone is not None:
            return timeline.of_gone_job(gone, walk, now_s)
        return timeline.of_job(self.core.jobs["j"], walk, self.recent.slots, now_s)

    def node(self, node: str, *messages: object, now_s: float = 0.0) -> None:
        for message in messages:
            self.said(node, message)
            super().node(node, message, now_s=now_s)


def ended(rig: WatchedRig, launch: m.Launch, started_at_s: float, service_s: float, now_s: float) -> None:
    report = m.Report("j", launch.task, launch.attempt, m.TaskStatus.FINISHED, b"", "", started_at_s, service_s)
    rig.node("n", report, now_s=now_s)


def test_a_job_in_time_while_it_is_here_and_after() -> None:
    rig = WatchedRig()
    rig.submit(("map", (), 2), ("reduce", ("map",), 1))
    first, second = rig.run()
    rig.recent.tick(3.0)
    ended(rig, first, 1.0, 2.5, 4.0)
    shown = rig.shown(4.5)
    assert shown.nodes == ["n"]
    assert [msgspec.to_builtins(run) for run in shown.runs] == [[first.task, 0, 1.0, 2.5, "finished"]]
    assert [msgspec.to_builtins(one) for one in shown.here] == [[second.task, 0, 3.0]]
    assert [(one.name, one.first, one.tasks, one.reserved_at_s, one.waiting) for one in shown.stages] == [
        ("map", 0, 2, 0.0, 0),
        ("reduce", 2, 1, None, 1),
    ]
    assert (shown.how, shown.ended_at_s, shown.more_runs, shown.more_here) == ("", None, 0, 0)

    ended(rig, second, 1.5, 3.0, 5.0)
    (last,) = rig.run()
    ended(rig, last, 6.0, 0.5, 7.0)
    assert "j" not in rig.core.jobs
    shown = rig.shown(9.0)
    assert [run.task for run in shown.runs] == [2, second.task, first.task]
    assert (shown.how, shown.ended_at_s, shown.here, shown.more_runs) == ("ended", 7.0, [], 0)


def test_a_timeline_has_a_bound_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "RUNS_MAX", 2)
    monkeypatch.setattr(timeline, "RUNS_PER_TURN", 1)
    monkeypatch.setattr(timeline, "HERE_MAX", 1)
    rig = WatchedRig()
    rig.submit(("map", (), 4), ("reduce", ("map",), 1))
    for launch in rig.run()[:3]:
        ended(rig, launch, 1.0, 1.0, 2.0)
    shown = rig.shown(3.0)
    assert (len(shown.runs), shown.more_runs, len(shown.here), shown.more_here) == (2, 1, 1, 0)


def test_a_span_has_what_was_counted_in_it() -> None:
    rig = WatchedRig()
    rig.submit(("map", (), 2))
    launches = rig.run()
    rig.recent.tick(1.0)
    rig.recent.tick(2.0)
    for launch in launches:
        ended(rig, launch, 3.0, 4.0, 7.5)
    rig.recent.tick(8.0)
    assert not rig.recent.hour.spans
    rig.recent.tick(SPAN_S)
    rig.recent.tick(2 * SPAN_S)
    full, empty = rig.recent.hour.spans
    assert (full.at_s, full.seconds, full.launched, full.finished, full.jobs_ended) == (SPAN_S, SPAN_S, 2, 2, 1)
    assert (full.busy, full.users, full.other_users) == (1.0, {"anna": 1.0}, 0.0)  # Two slots in two of four looks.
    assert [(one.p50, one.p99) for one in (full.job_s, full.wait_s, full.service_s) if one is not None] == [
        (7.5, 7.5),
        (3.0, 3.0),
        (4.0, 4.0),
    ]
    assert (empty.launched, empty.finished, empty.busy, empty.job_s, empty.users) == (0, 0, 0.0, None, {})


def test_reports_that_no_core_takes_are_not_looked_at() -> None:
    rig = WatchedRig()
    rig.submit(("map", (), 2))
    (launch, _) = rig.run()
    for started_at_s, service_s in [(float("nan"), 1.0), (1.0, float("inf")), (1.0, -1.0)]:
        report = m.Report("j", launch.task, launch.attempt, m.TaskStatus.FINISHED, b"", "", started_at_s, service_s)
        rig.said("n", report)
    rig.said("n", m.Report("j", 99, 1, m.TaskStatus.FINISHED, b"", "", 1.0, 1.0))
    assert rig.shown(1.0).runs[1:] == []
    assert rig.recent.hour.service_s.values == [1.0]


def test_an_hour_has_a_bound() -> None:
    rig = SchedulerRig()
    hour = Hour(rig.core.counters, 0.0)
    for number in range(SPANS_MAX + 5):
        hour.looked({f"{user:02}" + "é" * (NAME_BYTES_MAX // 2 - 2): 3 for user in range(40)})
        hour.end(float(number), nodes=1, slots=1, unplaced=0)
    assert len(hour.spans) == SPANS_MAX
    assert (len(hour.spans[0].users), hour.spans[0].other_users) == (10, 90.0)
    assert len(msgspec.json.encode(hour.spans[0])) < SPAN_BYTES_MAX


GONE = GoneJob("j", "", "u", "app", 0, "ended", 1, {}, 0.0, 1.0, 1, (), 0)


def test_jobs_are_forgotten_when_they_are_old_or_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = GoneJobs()
    for number in range(4):
        jobs.add(replace(GONE, id=f"j{number}", gone_at_s=float(number)))
    assert [job.id for job in jobs.latest_first()] == ["j3", "j2", "j1", "j0"]
    jobs.expire(AGE_S_MAX + 1.5)
    assert [job.id for job in jobs.latest_first()] == ["j3", "j2"]
    jobs.add(replace(GONE, id="j2", user="v"))
    assert [(job.id, job.user) for job in jobs.latest_first()] == [("j2", "v"), ("j3", "u")]
    assert jobs.bytes == sum(job.bytes for job in jobs.latest_first())
    monkeypatch.setattr(gone_jobs, "BYTES_MAX", 2 * GONE.bytes + 10)
    jobs.add(replace(GONE, id="j4"))
    assert [job.id for job in jobs.latest_first()] == ["j4", "j2"]


@given(st.integers(0, 5000))
def test_samples_are_spread_over_all(count: int) -> None:
    samples = Samples()
    for number in range(count):
        if number >= samples.next:
            samples.add(number, float(number))
    assert len(samples.values) < SAMPLES_MAX
    found = samples.percentiles((0.5, 0.99))
    assert len(found) == (2 if count else 0)
    for value, part in zip(found, (0.5, 0.99), strict=False):
        assert abs(value - part * count) <= 2 + count / 32


def test_slots_are_due_by_weight_and_no_more_than_wanted() -> None:
    assert fair_slots(12.0, {"a": 1, "b": 50, "c": 50}, {"a": 1.0, "b": 1.0, "c": 3.0}) == {
        "a": 1.0,
        "b": 2.75,
        "c": 8.25,
    }
    assert fair_slots(10.0, {"a": 3}, {"a": 1.0}) == {"a": 3.0}
    assert fair_slots(10.0, {}, {}) == {}


@given(
    st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(0, 50), st.floats(0.1, 10))), st.integers(0, 100)
)
def test_slots_that_are_due_are_never_more_than_there_are(users: dict[str, tuple[int, float]], slots: int) -> None:
    wanted = {user: want for user, (want, _) in users.items()}
    due = fair_slots(slots, wanted, {user: weight for user, (_, weight) in users.items()})
    assert sum(due.values()) == pytest.approx(min(slots, sum(wanted.values())))
    assert all(0 <= due[user] <= wanted[user] for user in users)
