"""Bad submissions: the error names the field, the value it had and what is allowed; nothing else happens."""

from __future__ import annotations

import math
from typing import Any

import pytest

from scheduler.book.validation import check_submission
from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.job import STAGE_EDGES_MAX, JobSpec, TaskSpec, check_name
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
