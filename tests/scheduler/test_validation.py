"""Bad submissions: the error names the field, the value it had and what is allowed; nothing else happens."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from scheduler.book.validation import check_submission
from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.job import DATA_NODES_MAX, STAGE_EDGES_MAX, JobSpec, TaskSpec, check_name
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, node_info

NAN = math.nan
LONG = "x" * 10_000
BAD = [
    ("job_id", "job", ""), ("job_id", "job", LONG), ("job_id", "job", "a\nb"), ("job_id", "job", "\ud800"),
    ("name", "name", LONG), ("name", "name", "\x00"),
    ("epoch", "epoch", -1), ("epoch", "epoch", 1 << 22), ("epoch", "epoch", True),
    ("max_attempts", "max_attempts", 0), ("max_attempts", "max_attempts", 1001), ("max_attempts", "max_attempts", True),
    ("queue_timeout_s", "queue_timeout_s", -0.1), ("queue_timeout_s", "queue_timeout_s", NAN),
    ("app", "app", ""), ("app", "app", LONG), ("runtime", "runtime", LONG),
    ("task_count", "task_count", -1), ("task_count", "task_count", 1 << 40), ("task_count", "task_count", True),
    *(("probe_ratio", "probe_ratio", bad) for bad in (0.99, 0.0, -2.0, NAN, math.inf, -math.inf, 1001.0, True)),
    ("prefetch", "prefetch", -1), ("prefetch", "prefetch", 1025), ("prefetch", "prefetch", True),
    *(("expected_duration_s", "expected_duration_s", bad) for bad in (-1.0, NAN, math.inf)),
    *(("demand", "demand", {"gpu": bad}) for bad in (-1.0, NAN, 1e19, 1e-310)),
    ("delay_s", "delay_s", -1.0), ("task_timeout_s", "task_timeout_s", NAN),
    *(("lease_s", "lease_s", bad) for bad in (0.0, 0.09, -1.0, 1.1e6, NAN, math.inf)),
    *(("policy", "policy", bad) for bad in ("flow", "auto", "Sparrow", LONG)),
    ("preemptible", "preemptible", True), ("gang", "gang", True), ("max_per_node", "max_per_node", 1),
    *((name, name, bad) for name in ("max_per_node", "max_per_rack") for bad in (0, -1, 1_000_001, True)),
    ("max_per_rack", "max_per_rack", 1), ("together_with", "together_with", LONG),
    ("together_with", "together_with", "other"),
    ("wait_for_nodes_s", "wait_for_nodes_s", -1.0), ("on_client_lost", "on_client_lost", "dance"),
]  # fmt: skip


def rig_with_python() -> SchedulerRig:
    return SchedulerRig({"n": node_info(apps={"many": "", "python": "3.11"})})


@pytest.mark.parametrize(("field", "name", "value"), BAD, ids=lambda value: str(value)[:20])
def test_the_error_names_field_value_and_what_is_allowed(field: str, name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_submission(submission(**{name: value}))
    error = caught.value
    assert error.field.partition("[")[0] == field
    assert error.allowed and error.allowed in str(error) and str(error).startswith(f"{error.field}: ")
    assert (repr(value["gpu"]) if isinstance(value, dict) else repr(value)[:40]) in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize(("field", "name", "value"), BAD, ids=lambda value: str(value)[:20])
def test_the_client_is_told_and_nothing_is_kept(field: str, name: str, value: Any) -> None:
    rig = rig_with_python()
    rig.client(submission(**{name: value}), m.AddTasks("j", 0, [b""]))  # The tasks were on their way.
    ((_, refused),) = rig.outbox.sent
    assert isinstance(refused, m.JobRefused)
    assert refused.field.partition("[")[0] == field and refused.retry_after_s is None
    assert not rig.core.jobs and not rig.core.admission.unplaced


def test_a_refusal_names_the_job_whole_however_long_its_id() -> None:
    """Else its client would not know whose refusal it is."""
    rig = rig_with_python()
    rig.client(submission("x" * 256, app="none"))
    assert rig.outbox.sent[0][1].job == "x" * 256


def stage(name: str, *after: str) -> m.Stage:
    return m.Stage("many", 1, b"", "", 2.0, 0, None, name=name, after=after)


def after_all_before(count: int) -> list[m.Stage]:
    names = [str(number) for number in range(count)]
    return [stage(name, *names[:number]) for number, name in enumerate(names)]


@pytest.mark.parametrize(
    ("stages", "field", "told"),
    [
        ([], "stages", "from 1 to 1000"),
        ([stage("a"), stage("a")], "stages[1].name", "'a'"),
        ([stage("a"), stage("")], "stages[1].name", "no other stage"),
        ([stage("a"), stage("b", "c")], "stages[1].after", "'c' is not valid; allowed: names of the job's stages"),
        ([stage("a", "b"), stage("b", "a")], "stages", "after"),
        ([stage("a", "a")], "stages", "a after a"),
        (after_all_before(450), "stages", "101025 names of stages in their `after`' is not valid; allowed: at most"),
    ],
)
def test_stages_that_make_no_dag_are_refused_by_name(stages: list[m.Stage], field: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_submission(m.SubmitJob("j", 0, "", stages, 1, False, None, False))
    assert caught.value.field == field and told in str(caught.value)


def of_stages(*stages: m.Stage, **fields: Any) -> m.SubmitJob:
    return m.SubmitJob("j", 0, "", list(stages), **{
        "max_attempts": 3, "retry_failed": False, "queue_timeout_s": None, "report_placed": False, **fields
    })  # fmt: skip


def limited(name: str = "", **fields: Any) -> m.Stage:
    return m.Stage("many", 1, b"", "", 2.0, 0, None, name=name, **fields)


RETRY = m.Retry(3, 1.0, 2.0, 9.0, 0.5)


@pytest.mark.parametrize(
    ("retry", "fields", "field"),
    [
        *((msgspec.structs.replace(RETRY, **{name: bad}), {}, f"stages[1].retry.{name}")
          for name, bad in (("attempts", 0), ("attempts", 1001), ("first_delay_s", -1.0), ("factor", 0.9),
                            ("factor", math.nan), ("longest_delay_s", 0.9), ("longest_delay_s", math.inf),
                            ("jitter", 1.1))),
        (RETRY, {"max_attempts": 1}, "stages[1].retry"),
        (RETRY, {"retry_failed": True}, "retry_failed"),
    ],
)  # fmt: skip
def test_retry_policies_are_checked(retry: m.Retry, fields: dict[str, Any], field: str) -> None:
    check_submission(of_stages(limited("a"), limited("b", retry=RETRY)))
    with pytest.raises(InvalidRequest) as caught:
        check_submission(of_stages(limited("a"), limited("b", retry=retry), **fields))
    assert caught.value.field == field


def test_a_scheduler_takes_jobs_of_its_own_plane_only() -> None:
    for policy in ("", "sparrow"):
        check_submission(submission(policy=policy))
        with pytest.raises(InvalidRequest, match=f"policy: '{policy}' is not valid; allowed: flow, which this sched"):
            check_submission(submission(policy=policy), plane=m.FLOW)
    check_submission(submission(policy="flow", preemptible=True), plane=m.FLOW)


@pytest.mark.parametrize("fields", [{"gang": True}, {"max_per_node": 1}, {"max_per_rack": 1}, {"together_with": "a"}])
def test_what_only_policy_flow_knows_is_nothing_for_a_scheduler_that_samples(fields: dict[str, Any]) -> None:
    stages = limited("a"), limited("b", **fields)
    (name,) = fields
    with pytest.raises(InvalidRequest, match='nothing but with policy="flow"') as caught:
        check_submission(of_stages(*stages))
    assert caught.value.field == f"stages[1].{name}"
    check_submission(of_stages(*stages, policy="flow"), plane=m.FLOW)


@pytest.mark.parametrize(
    ("stages", "fields", "field"),
    [
        ([limited()], {"preemptible": True, "max_attempts": 1}, "preemptible"),
        ([limited("a", together_with="b"), limited("b", together_with="a")], {}, "stages"),
        ([limited("a", together_with="a"), limited("b")], {}, "stages[0].together_with"),
        ([limited(gang=True)], {"preemptible": True}, "gang"),
        ([limited(max_per_node=2)], {"preemptible": True}, "max_per_node"),
        ([limited("a"), limited("b", max_per_rack=1)], {"preemptible": True}, "stages[1].max_per_rack"),
        (
            [limited("a"), limited("b", together_with="a", after=("a",))],
            {"preemptible": True},
            "stages[1].together_with",
        ),
    ],
)
def test_what_a_scheduler_of_policy_flow_does_not_take(
    stages: list[m.Stage], fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_submission(of_stages(*stages, policy="flow", **fields), plane=m.FLOW)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("of_user", "of_job", "of_stage", "allowed"),
    [(0, None, 1, 0), (5, None, 6, 5), (5, 3, 4, 3), (-7, None, -6, -7)],
)
def test_a_stage_states_no_higher_priority_than_its_job(
    of_user: int, of_job: int | None, of_stage: int, allowed: int
) -> None:
    for stage, is_refused in ((of_stage, True), (allowed, False)):
        rig = SchedulerRig({"n": node_info(apps={"many": ""})}, user_priority=(f"anna={of_user}",))
        rig.client(of_stages(limited("a", priority=stage), limited("b"), priority=of_job), user="anna")
        answers = rig.take(m.JobRefused)
        assert [answer.field for answer in answers] == ["stages[0].priority"] * is_refused
        if is_refused:
            assert f"to {allowed}, the job's own" in answers[0].reason


def test_reservations_of_a_stage_have_its_priority() -> None:
    rig = SchedulerRig({"n": node_info(apps={"many": ""})}, user_priority=("anna=5",))
    rig.client(of_stages(limited("a", priority=-2), limited("b")), m.AddTasks("j", 0, [b"", b""]), user="anna")
    assert sorted(reserve.priority for reserve in rig.take(m.Reserve)) == [-2, 5]


@pytest.mark.parametrize("data", [[(str(node), 1) for node in range(DATA_NODES_MAX + 1)], [("a", -1)]])
def test_data_of_a_task_that_cannot_be_breaks_the_link(data: list[tuple[str, int]]) -> None:
    rig = rig_with_python()
    rig.client(submission("j", 1))
    with pytest.raises(LinkError, match="the data of task 0 is at more than 64 nodes, or its bytes are not from 0 to"):
        rig.client(m.AddTasks("j", 0, [b""], {0: m.TaskDetail(data=tuple(data))}))


@pytest.mark.parametrize("data_bytes", [-1, 6, (1 << 46) + 1])
def test_data_are_parts_of_no_fewer_bytes_and_of_no_more_than_nodes_may_have(data_bytes: int) -> None:
    rig = rig_with_python()
    rig.client(submission("j", 1))
    with pytest.raises(LinkError, match=f"data_bytes of task 0 are {data_bytes}; allowed are 7 to"):
        rig.client(m.AddTasks("j", 0, [b""], {0: m.TaskDetail(data=(("a", 7),), data_bytes=data_bytes)}))


@pytest.mark.parametrize(
    ("data", "why"),
    [([("a", 1), ("a", 2)], "names a node twice"), ([(LONG, 1)], "data of task 0"), ([("", 1)], "data of task 0")],
)
def test_nodes_of_data_are_named_once_by_names_that_nodes_may_have(data: list[tuple[str, int]], why: str) -> None:
    rig = rig_with_python()
    rig.client(submission("j", 1))
    with pytest.raises((LinkError, InvalidRequest), match=why):
        rig.client(m.AddTasks("j", 0, [b""], {0: m.TaskDetail(data=tuple(data))}))


def test_limits_themselves_are_allowed() -> None:
    edges = [*after_all_before(447), stage("last", *map(str, range(319)))]
    assert sum(len(one.after) for one in edges) == STAGE_EDGES_MAX
    check_submission(m.SubmitJob("j", 0, "", edges, 1, False, None, False))
    check_submission(
        submission("x" * 256, tasks=0, probe_ratio=1000.0, prefetch=1024, max_attempts=1000, queue_timeout_s=math.inf)
    )


def test_apps_and_runtimes_that_no_node_has_are_refused_by_name() -> None:
    rig = rig_with_python()
    rig.client(submission("a", app="fortran"), submission("b", app="python", runtime="3.99"))
    app, runtime = (message for _, message in rig.outbox.sent)
    assert app.field == "app" and "fortran" in app.reason and "many, python" in app.reason
    assert runtime.field == "runtime" and "3.99" in runtime.reason and "3.11" in runtime.reason


def test_a_user_name_of_10_kb_is_refused_with_a_short_error() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_name("user", LONG, empty=False)
    assert caught.value.field == "user" and "256 bytes" in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("count", [0, -5])
def test_a_node_that_counts_wrongly_is_cut_off(count: int) -> None:
    rig = rig_with_python()
    rig.submit_job(3)
    (reserve,) = rig.take(m.Reserve)
    for message in (m.GetTasks(1, reserve.ticket, count), m.ReservationsRefused(reserve.ticket, count, "")):
        with pytest.raises(LinkError):
            rig.node("n", message)
        rig.core.check_invariants()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tasks": [TaskSpec(b"", "a"), TaskSpec(b"", "b"), TaskSpec(b"", "a")]}, "tasks[2].id"),
        ({"tasks": [b"", "text"]}, "tasks[1]"),
        ({"tasks": [TaskSpec("text")]}, "tasks[0]"),  # type: ignore[arg-type]
        ({"tasks": [TaskSpec(b"", "x" * 300)]}, "tasks[0].id"),
        ({"tasks": [], "probe_ratio": NAN}, "probe_ratio"),
        ({"tasks": [], "probe_ratio": "2"}, "probe_ratio"),
        ({"tasks": [], "prefetch": 1.5}, "prefetch"),
        ({"tasks": [], "max_attempts": False}, "max_attempts"),
        ({"tasks": [], "queue_timeout_s": -1}, "queue_timeout_s"),
        ({"tasks": [], "app": ""}, "app"),
        ({"tasks": [], "name": LONG}, "name"),
    ],
)
def test_a_job_spec_is_checked_before_it_is_sent(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        JobSpec(**fields).validate()
    assert caught.value.field == field
