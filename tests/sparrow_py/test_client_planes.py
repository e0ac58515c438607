"""Which scheduler gets a job, if some sample and one leads a plane that places: the client's core alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sparrow_py.errors import InvalidRequest, NoScheduler
from sparrow_py.job import FLOW_FROM_S, POLICIES, BlobRef, StageSpec, TaskSpec
from sparrow_py.session.core import DECIDE_TIMEOUT_S
from sparrow_py.wire import messages as m
from tests.support.client_core import Rig, Told, outcome

LONG, SHORT = {"expected_duration_s": FLOW_FROM_S}, {"expected_duration_s": FLOW_FROM_S - 0.1}


def up(
    rig: Rig, scheduler: str, plane: str = m.SPARROW, *, leads: bool = True, now_s: float = 0.0, **more: Any
) -> None:
    rig.core.scheduler_up(scheduler, m.FRAME_BYTES_MAX, now_s, plane=plane, leads=leads, **more)
    rig.core.check_invariants()


def both(*, leads: bool = True, submit_timeout_s: float = 10.0) -> Rig:
    """A core with a sampling scheduler "s", and "f" of policy flow."""
    rig = Rig(submit_timeout_s=submit_timeout_s)
    up(rig, "s")
    up(rig, "f", m.FLOW, leads=leads)
    return rig


def sent(rig: Rig) -> list[tuple[str, str, int]]:
    """(scheduler, policy, epoch) of the submissions since the last call."""
    return [(to, message.policy, message.epoch) for to, message in rig.outbox.take(m.SubmitJob)]


# ---- which plane -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [
        ({}, ("s", "", 0)),
        (LONG, ("s", "", 0)),
        ({"policy": "sparrow"}, ("s", "sparrow", 0)),
        ({"policy": "flow"}, ("f", "flow", 0)),
        ({"policy": "auto"}, ("s", "sparrow", 0)),
        ({"policy": "auto", **SHORT}, ("s", "sparrow", 0)),
        ({"policy": "auto", **LONG}, ("f", "flow", 0)),
    ],
)
def test_a_job_goes_to_a_scheduler_of_its_plane(fields: dict[str, Any], chosen: tuple[str, str, int]) -> None:
    rig = both()
    for number in range(10):
        rig.submit(1, job_id=f"j{number}", **fields)
    assert sent(rig) == [chosen] * 10


@pytest.mark.parametrize(("second", "chosen"), [(LONG, "f"), (SHORT, "s"), ({}, "s")])
def test_with_auto_all_stages_of_a_job_must_be_long(second: dict[str, Any], chosen: str) -> None:
    rig = both()
    stages = [StageSpec([b""], name="a", app="x", **LONG), StageSpec([b""], name="b", app="x", **second)]  # type: ignore[arg-type]
    rig.submit([], stages=stages, policy="auto")
    assert [to for to, _, _ in sent(rig)] == [chosen]


def test_auto_is_sampled_while_nobody_leads_policy_flow_and_stays_so() -> None:
    rig = both(leads=False)
    rig.submit(1, policy="auto", **LONG)
    assert sent(rig) == [("s", "sparrow", 0)]
    rig.receive(m.Leads(True), scheduler="f")
    rig.core.scheduler_down("s", "gone", 1.0)
    assert sent(rig) == []
    up(rig, "t", now_s=2.0)
    assert sent(rig) == [("t", "sparrow", 1)]


@pytest.mark.parametrize("fields", [{}, {"policy": "auto"}, {"policy": "auto", **SHORT}, {"policy": "auto", **LONG}])
def test_a_job_that_names_no_policy_goes_where_only_policy_flow_is(fields: dict[str, Any]) -> None:
    rig = Rig()
    up(rig, "f", m.FLOW)
    rig.submit(1, **fields)
    assert sent(rig) == [("f", "flow", 0)]
    up(rig, "s")
    rig.core.scheduler_down("f", "gone", 1.0)
    assert sent(rig) == [], "it keeps its plane"
    up(rig, "g", m.FLOW, now_s=2.0)
    assert sent(rig) == [("g", "flow", 1)]


def test_schedulers_that_are_about_to_be_dialled_are_waited_for_where_that_matters() -> None:
    rig = Rig()
    rig.core.dialling()
    up(rig, "f", m.FLOW)
    rig.submit(1, job_id="any")
    rig.submit(1, job_id="stated", policy="flow")
    assert sent(rig) == [("f", "flow", 0)]
    up(rig, "s")
    assert sent(rig) == [("s", "", 0)]


def test_auto_waits_for_the_leader_that_is_about_to_be_dialled() -> None:
    rig = Rig()
    rig.core.dialling()
    up(rig, "s")
    rig.submit(1, job_id="long", policy="auto", **LONG)
    rig.submit(1, job_id="short", policy="auto", **SHORT)
    assert sent(rig) == [("s", "sparrow", 0)]
    up(rig, "f", m.FLOW)
    assert sent(rig) == [("f", "flow", 0)]


@pytest.mark.parametrize("fields", [SHORT, LONG])
def test_auto_waits_for_a_leader_where_only_policy_flow_is(fields: dict[str, Any]) -> None:
    rig = Rig()
    up(rig, "f", m.FLOW, leads=False)
    rig.submit(1, policy="auto", **fields)
    assert sent(rig) == []
    rig.receive(m.Leads(True), scheduler="f", now_s=1.0)
    assert sent(rig) == [("f", "flow", 0)]


@pytest.mark.parametrize("by", ["the last dial", "time"])
def test_it_is_decided_with_those_that_answered(by: str) -> None:
    rig = Rig()
    rig.core.dialling()
    up(rig, "s")
    rig.submit(1, policy="auto", **LONG)
    up(rig, "f", m.FLOW, leads=False)
    assert sent(rig) == []
    if by == "time":
        rig.core.tick(DECIDE_TIMEOUT_S - 0.1)
        assert sent(rig) == [] and rig.core.next_deadline_s() == DECIDE_TIMEOUT_S
        rig.core.tick(DECIDE_TIMEOUT_S)
    else:
        rig.core.all_dialled(0.5)
    assert sent(rig) == [("s", "sparrow", 0)]


# ---- leaders ---------------------------------------------------------------------------------


def test_a_job_waits_for_a_leader_of_its_plane() -> None:
    rig = both(leads=False)
    _, told = rig.submit(1, policy="flow")
    assert sent(rig) == [] and told.calls == []
    rig.receive(m.Leads(True), scheduler="f", now_s=3.0)
    assert sent(rig) == [("f", "flow", 0)]
    up(rig, "g", m.FLOW, leads=False)
    for number in range(10):
        rig.submit(1, job_id=f"k{number}", policy="flow")
    assert {to for to, _, _ in sent(rig)} == {"f"}


@pytest.mark.parametrize(
    ("planes", "reason"),
    [
        ([("s", m.SPARROW, True)], "it is for policy flow; connected are schedulers of policy sparrow"),
        (
            [("s", m.SPARROW, True), ("f", m.FLOW, False)],
            "it is for policy flow; connected are schedulers of policy flow, sparrow; of policy flow, f does not lead, "
            "and takes no jobs",
        ),
        ([], "no scheduler is connected"),
    ],
)
def test_a_job_that_nobody_takes_is_refused_with_that_reason(planes: list[tuple[str, str, bool]], reason: str) -> None:
    rig = Rig(submit_timeout_s=7.0)
    for scheduler, plane, leads in planes:
        up(rig, scheduler, plane, leads=leads)
    _, told = rig.submit(1, policy="flow")
    rig.core.tick(6.9)
    assert told.error is None
    rig.core.tick(7.0)
    assert sent(rig) == [] and isinstance(told.error, NoScheduler)
    assert str(told.error) == f"no scheduler took job j within submit_timeout_s = 7 s: {reason}"


def test_a_job_of_policy_flow_is_never_sampled_when_its_leader_is_gone() -> None:
    rig = both()
    job, told = rig.submit(2, policy="flow", max_attempts=2)
    rig.receive(m.JobAccepted("j"), scheduler="f")
    sent(rig)
    rig.core.scheduler_down("f", "it died", 1.0)
    up(rig, "g", m.FLOW, leads=False, now_s=1.0)
    assert sent(rig) == [] and job.scheduler is None
    rig.core.tick(5.0)
    rig.receive(m.Leads(True), scheduler="g", now_s=6.0)
    assert sent(rig) == [("g", "flow", 1)] and "refused" not in told.calls


def test_a_leader_that_steps_down_hands_its_jobs_to_the_next() -> None:
    rig = both()
    up(rig, "g", m.FLOW, leads=False)
    rig.submit(1, job_id="had", policy="flow")
    rig.submit(1, job_id="crossed", policy="flow")
    rig.receive(m.JobAccepted("had"), scheduler="f")
    sent(rig)
    why_not = m.JobRefused("crossed", "another leads policy flow", "", 5.0)
    rig.receive(m.Leads(False), m.HandedOver("had", ()), why_not, scheduler="f", now_s=1.0)
    assert sent(rig) == []
    rig.receive(m.Leads(True), scheduler="g", now_s=1.5)
    assert sorted(sent(rig)) == [("g", "flow", 0), ("g", "flow", 1)]


def test_a_scheduler_that_is_back_and_leads_no_more_does_not_get_its_jobs_back() -> None:
    rig = both()
    job, _ = rig.submit(1, policy="flow")
    rig.receive(m.JobAccepted("j"), scheduler="f")
    sent(rig)
    rig.core.scheduler_down("f", "cut", 1.0, redialled=True)
    up(rig, "f", m.FLOW, leads=False, now_s=1.1)
    up(rig, "g", m.FLOW, now_s=1.2)
    assert sent(rig) == [("g", "flow", 1)] and job.scheduler == "g"


# ---- what goes together ----------------------------------------------------------------------


def test_jobs_of_two_planes_cannot_avoid_each_other() -> None:
    rig = both()
    rig.submit(1, job_id="placed", policy="flow")
    with pytest.raises(InvalidRequest, match=r"avoid: .* jobs of its own policy, sparrow; these are of policy flow"):
        rig.submit(1, job_id="sampled", avoid=["placed"])
    assert list(rig.core.jobs) == ["placed"]


@pytest.mark.parametrize("policy", ["", "sparrow"])
def test_priorities_of_stages_are_refused_where_all_schedulers_are_of_the_version_before(policy: str) -> None:
    rig = Rig()
    up(rig, "old", version=m.PLANES_SINCE - 1)
    stages = [StageSpec([b""], name="a", app="x", priority=-1), StageSpec([b""], name="b", app="x")]
    refused = r"stages\[0\].priority: -1 is not valid; allowed: none: scheduler old is of a version that does not know"
    with pytest.raises(InvalidRequest, match=refused):
        rig.submit([], stages=stages, policy=policy)
    up(rig, "new")
    for number in range(10):
        rig.submit([], job_id=f"k{number}", stages=stages, policy=policy)
    assert {to for to, _, _ in sent(rig)} == {"new"}


def test_data_as_inputs_are_refused_where_all_schedulers_are_of_the_version_before() -> None:
    rig = Rig()
    up(rig, "old", version=m.PLANES_SINCE - 1)
    with pytest.raises(InvalidRequest, match=r"inputs: .* scheduler old is of a version that does not know data as in"):
        rig.submit([TaskSpec(inputs=[BlobRef("f" * 64, 1, ())])])


# ---- whatever happens ------------------------------------------------------------------------


class OnceTold(Told):
    """A sink that is told one end only."""

    def ended(self) -> None:
        assert not {"ended", "refused"} & set(self.calls)
        super().ended()

    def refused(self, error: Any) -> None:
        assert not {"ended", "refused"} & set(self.calls)
        super().refused(error)


class Planes(RuleBasedStateMachine):
    """Schedulers of both planes come, go, lead and step down, while jobs are submitted and move."""

    @initialize(all_dialled=st.booleans())
    def begin(self, all_dialled: bool) -> None:
        self.rig = Rig()
        self.now_s = 0.0
        self.up: dict[str, tuple[str, bool]] = {}
        self.told: dict[str, OnceTold] = {}
        self.plane_of: dict[str, str] = {}
        self.number = 0
        if not all_dialled:
            self.rig.core.dialling()

    def look(self) -> None:
        """What was sent is for a scheduler that may have it, and for the plane that the job had before."""
        self.rig.core.check_invariants()
        for to, message in self.rig.outbox.take(m.SubmitJob):
            plane, leads = self.up[to]
            assert leads and (message.policy or m.SPARROW) == plane
            assert self.plane_of.setdefault(message.job, plane) == plane
            stated = self.stated(message.job)
            assert plane == stated or stated in ("", "auto")
        self.rig.outbox.sent.clear()

    @staticmethod
    def stated(job: str) -> str:
        return job.split("-")[1]

    @rule(policy=st.sampled_from(POLICIES), duration_s=st.sampled_from([None, 1.0, FLOW_FROM_S]))
    def submit(self, policy: str, duration_s: float | None) -> None:
        self.number += 1
        job = f"{self.number}-{policy}"
        told = self.told[job] = OnceTold()
        spec = Rig.spec(job_id=job, policy=policy, expected_duration_s=duration_s)
        self.rig.core.submit(spec, told, self.now_s)
        self.look()

    @rule(name=st.sampled_from("abcd"), plane=st.sampled_from([m.SPARROW, m.FLOW]), leads=st.booleans())
    def comes(self, name: str, plane: str, leads: bool) -> None:
        if name not in self.up:
            self.up[name] = plane, leads or plane == m.SPARROW
            up(self.rig, name, plane, leads=self.up[name][1], now_s=self.now_s)
            self.look()

    @rule(name=st.sampled_from("abcd"), redialled=st.booleans())
    def goes(self, name: str, redialled: bool) -> None:
        if self.up.pop(name, None) is not None:
            self.rig.core.scheduler_down(name, "cut", self.now_s, redialled=redialled)
            self.look()

    @rule(name=st.sampled_from("abcd"))
    def stays_away(self, name: str) -> None:
        if name not in self.up:
            self.rig.core.scheduler_unreachable(name, self.now_s)
            self.look()

    @rule(name=st.sampled_from("abcd"), leads=st.booleans())
    def leads(self, name: str, leads: bool) -> None:
        if name in self.up and self.up[name][0] == m.FLOW:
            self.up[name] = m.FLOW, leads
            self.rig.receive(m.Leads(leads), scheduler=name, now_s=self.now_s)
            self.look()

    @rule(pick=st.integers(0, 99), what=st.sampled_from(["accepted", "refused", "for now", "handed over", "ends"]))
    def says(self, pick: int, what: str) -> None:
        placed = [job for job in self.rig.core.jobs.values() if job.scheduler is not None]
        if not placed:
            return
        job = placed[pick % len(placed)]
        scheduler = str(job.scheduler)
        answers: dict[str, list[m.Message]] = {
            "accepted": [m.JobAccepted(job.id)],
            "refused": [m.JobRefused(job.id, "no")],
            "for now": [m.JobRefused(job.id, "full", "", 0.5)],
            "handed over": [m.JobAccepted(job.id), m.HandedOver(job.id, ())],
            "ends": [m.JobAccepted(job.id), outcome(0), m.JobEnded(job.id)],
        }
        for message in answers[what]:
            if type(message) is m.Outcome:
                message.job = job.id
            self.rig.core.receive(scheduler, message, self.now_s)
            self.look()

    @rule()
    def all_dialled(self) -> None:
        self.rig.core.all_dialled(self.now_s)
        self.look()

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.rig.core.tick(self.now_s)
        self.look()

    def teardown(self) -> None:
        """Nothing hangs: without schedulers every job ends."""
        if not hasattr(self, "rig"):
            return
        for name in list(self.up):
            self.goes(name, False)
        for _ in range(10):
            self.time_passes(20.0)
        assert not self.rig.core.jobs
        assert all({"ended", "refused"} & set(told.calls) for told in self.told.values())


Planes.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPlanes = Planes.TestCase
