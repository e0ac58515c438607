"""What a job may be: every wrong shape is refused by an error that names field, value and what is allowed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sparrow_py.errors import InvalidRequest
from sparrow_py.job import (
    DATA_NODES_MAX,
    DEMANDS_MAX,
    GROUP_MAX,
    INPUTS_MAX,
    PREFERRED_MAX,
    STAGES_MAX,
    BlobRef,
    JobReport,
    JobSpec,
    RetryPolicy,
    StageSpec,
    TaskReport,
    TaskResult,
    TaskSpec,
    TaskStatus,
)

LONG = "x" * 300
LONE = "a\ud800"
REF = BlobRef("f" * 64, 1, ("n:1",))


def stage(name: str = "", *after: str, tasks: Any = (b"",), **fields: Any) -> StageSpec:
    return StageSpec(tasks, name=name, after=list(after), **fields)


STAGE_FIELDS: list[tuple[str, str, Any]] = [
    ("name", "name", LONG), ("name", "name", "a\nb"), ("name", "name", 3),
    ("app", "app", ""), ("app", "app", None), ("runtime", "runtime", LONG),
    *(("probe_ratio", "probe_ratio", bad) for bad in (0.5, 1001, math.nan, math.inf, "2", True, None)),
    *(("prefetch", "prefetch", bad) for bad in (-1, 1025, 1.0, True, None)),
    *((name, name, bad) for name in ("expected_duration_s", "delay_s", "task_timeout_s")
      for bad in (-1, math.nan, math.inf, "1", True)),
    *(("lease_s", "lease_s", bad) for bad in (0, 0.099, -1, 1.1e6, math.nan, math.inf, "1", True)),
    *(("retry", "retry", bad) for bad in (3, True, {"attempts": 2}, RetryPolicy)),
    ("common", "common", "text"), ("common", "common", None),
    ("demand", "demand", [("cpu", 1)]), ("demand", "demand", {str(number): 1 for number in range(DEMANDS_MAX + 1)}),
    ("demand['cpu']", "demand", {"cpu": -1}), ("demand['cpu']", "demand", {"cpu": math.nan}),
    ("demand['cpu']", "demand", {"cpu": "1"}), ("demand['cpu']", "demand", {"cpu": 1e19}),
    ("demand ''", "demand", {"": 1}), ("demand 3", "demand", {3: 1}),
    ("where", "where", "zone == eu"), ("where", "where", {"zone": "eu"}), ("where[0]", "where", [3]),
    ("after", "after", "other"), ("after[0]", "after", [""]), ("after[0]", "after", [3]),
    ("tasks[0]", "tasks", ["text"]), ("tasks[1]", "tasks", [b"", None]), ("tasks[0]", "tasks", [TaskSpec("text")]),  # type: ignore[arg-type]
    ("tasks[0].id", "tasks", [TaskSpec(b"", LONG)]), ("tasks[1].id", "tasks", [TaskSpec(b"", "a"), TaskSpec(b"", "a")]),
    ("tasks[0].preferred", "tasks", [TaskSpec(preferred="node")]),
    ("tasks[0].preferred[1]", "tasks", [TaskSpec(preferred=["a", ""])]),
    ("tasks[0].preferred", "tasks", [TaskSpec(preferred=["a"] * (PREFERRED_MAX + 1))]),
    ("tasks[0].inputs", "tasks", [TaskSpec(inputs="map")]),
    ("tasks[0].data", "tasks", [TaskSpec(data=[("a", 1)])]),  # type: ignore[arg-type]
    ("tasks[0].data", "tasks", [TaskSpec(data={str(node): 1 for node in range(DATA_NODES_MAX + 1)})]),
    ("tasks[0].data ''", "tasks", [TaskSpec(data={"": 1})]),
    *(("tasks[0].data['a']", "tasks", [TaskSpec(data={"a": bad})]) for bad in (-1, 1.5, True, 1 << 63)),  # type: ignore[dict-item]
    *(("tasks[0].data_bytes", "tasks", [TaskSpec(data={"a": 8}, data_bytes=bad)]) for bad in (7, -1, 9.5, 1 << 47)),  # type: ignore[arg-type]
    ("gang", "gang", 1), ("gang", "gang", None),
    *((name, name, bad) for name in ("max_per_node", "max_per_rack") for bad in (0, 1.5, True, "1", GROUP_MAX + 1)),
    ("together_with", "together_with", LONG), ("together_with", "together_with", None),
    *(("priority", "priority", bad) for bad in (-1001, 1_000_001, 1.0, "1", True)),
    ("tasks[0].inputs", "tasks", [TaskSpec(inputs=["map"] * (INPUTS_MAX + 1))]),
    # What has lone surrogates cannot be sent.
    *((name, name, LONE) for name in ("name", "app", "runtime", "together_with")),
    ("where[0]", "where", [f"zone == {LONE}"]), ("where[0]", "where", [f"{LONE} exists"]),
    (f"demand {LONE!r}", "demand", {LONE: 1}),
    ("tasks[0].id", "tasks", [TaskSpec(b"", LONE)]),
    ("tasks[0].preferred[0]", "tasks", [TaskSpec(preferred=[LONE])]),
    (f"tasks[0].data {LONE!r}", "tasks", [TaskSpec(data={LONE: 1})]),
    ("common.at", "common", BlobRef("f" * 64, 1, (LONE,))),
    ("tasks[0].payload.at", "tasks", [BlobRef("f" * 64, 1, (LONE,))]),
    ("tasks[0].inputs[0].at", "tasks", [TaskSpec(inputs=[BlobRef("f" * 64, 1, (LONE,))])]),
    ("tasks[0].inputs.job_id", "tasks", [TaskSpec(inputs=[TaskResult(LONE, 0)])]),
]  # fmt: skip
JOB_FIELDS: list[tuple[str, str, Any]] = [
    ("job_id", "job_id", LONG), ("job_id", "job_id", 3),
    *(("max_attempts", "max_attempts", bad) for bad in (0, 1001, 1.5, True, None)),
    *((name, name, bad) for name in ("queue_timeout_s", "wait_for_nodes_s") for bad in (-1, math.nan, "1", True)),
    ("retry_failed", "retry_failed", 1), ("report_placed", "report_placed", "yes"),
    ("on_client_lost", "on_client_lost", "dance"), ("on_client_lost", "on_client_lost", None),
    *(("policy", "policy", bad) for bad in ("Flow", "central", None, 3)),
    ("preemptible", "preemptible", 1), ("preemptible", "preemptible", None),
    *(("avoid_by", "avoid_by", bad) for bad in (None, 1, LONG, "a\n")),
    *((name, name, LONE) for name in ("job_id", "avoid_by")), ("avoid[0]", "avoid", [LONE]),
    ("avoid", "avoid", "job"), ("avoid[0]", "avoid", [""]), ("avoid[0]", "avoid", [LONG]),
    ("stages[0]", "stages", [b"task"]),
]  # fmt: skip


def refused(spec: JobSpec) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        spec.validate()
    error = caught.value
    assert error.allowed and str(error).startswith(f"{error.field}: ") and error.allowed in str(error)
    assert len(str(error)) < 500
    return error


@pytest.mark.parametrize(("field", "name", "value"), [*STAGE_FIELDS, *JOB_FIELDS], ids=lambda value: str(value)[:20])
def test_a_field_that_cannot_be_is_named(field: str, name: str, value: Any) -> None:
    assert refused(JobSpec(**{"tasks": () if name == "stages" else (b"",), name: value})).field == field


@pytest.mark.parametrize(("field", "name", "value"), STAGE_FIELDS, ids=lambda value: str(value)[:20])
def test_of_a_stage_with_its_position(field: str, name: str, value: Any) -> None:
    bad = StageSpec(**{"name": "b", name: value})
    assert refused(JobSpec(stages=[stage("a"), bad])).field == f"stages[1].{field}"


@pytest.mark.parametrize(
    ("stages", "field", "told"),
    [
        ([stage(), stage("b")], "stages[0].name", "no other stage"),
        ([stage("a"), stage("b"), stage("a")], "stages[2].name", "'a'"),
        ([stage("a"), stage("b", "c")], "stages[1].after", "'c'"),
        ([stage("a", "a")], "stages", "a after a"),
        ([stage("a", "c"), stage("b", "a"), stage("c", "b")], "stages", " after "),
        ([stage(str(number)) for number in range(STAGES_MAX + 1)], "stages", f"at most {STAGES_MAX}"),
    ],
)
def test_stages_must_make_a_dag(stages: list[StageSpec], field: str, told: str) -> None:
    error = refused(JobSpec(stages=stages))
    assert error.field == field and told in str(error)


@pytest.mark.parametrize(
    "wanted",
    ["b", "none", "", ("a", 2), ("a", -1), ("a", 0.5), ("a", True), ("a",), ("a", 0, 0), ("b", 0), 3, ["a", 0], None],
)
def test_a_task_may_ask_for_results_of_stages_before_its_own(wanted: Any) -> None:
    stages = [stage("a", tasks=[b"", b""]), stage("b"), stage("c", "a", tasks=[b"", TaskSpec(inputs=[wanted])])]
    assert refused(JobSpec(stages=stages)).field.startswith("stages[2].tasks[1].inputs")


def test_tasks_beside_stages_are_refused() -> None:
    assert refused(JobSpec([b""], stages=[stage("a")])).field == "tasks"


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("attempts", bad) for bad in (0, -1, 1001, 2.0, "3", True, None)),
        *(("first_delay_s", bad) for bad in (-0.1, 86_401, math.nan, math.inf, "1", None)),
        *(("factor", bad) for bad in (0.5, 1001, math.nan, "2", True)),
        *(("longest_delay_s", bad) for bad in (0.4, 86_401, math.inf, None)),
        *(("jitter", bad) for bad in (-0.1, 1.1, math.nan, "0", True)),
    ],
)
def test_a_retry_policy_that_cannot_be_is_refused_by_name(name: str, bad: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        RetryPolicy(**{name: bad})
    assert caught.value.field == name and caught.value.allowed in str(caught.value)


def test_a_first_delay_beyond_the_longest_is_told_with_both() -> None:
    with pytest.raises(InvalidRequest, match="longest_delay_s: 30") as caught:
        RetryPolicy(first_delay_s=60)
    assert caught.value.allowed == "from first_delay_s, here 60, to 86400"


def test_what_a_retry_policy_cannot_go_with() -> None:
    once = refused(JobSpec([b""], retry=RetryPolicy(), max_attempts=1))
    assert once.field == "retry" and "max_attempts=1" in str(once)
    both = refused(JobSpec(stages=[stage("a"), stage("b", retry=RetryPolicy())], retry_failed=True))
    assert both.field == "retry_failed" and "retry policy" in str(both)
    JobSpec([b""], retry=RetryPolicy(1, 0.0, 1.0, 0.0, 0.0)).validate()


FLOW_ONLY: list[dict[str, Any]] = [{"gang": True}, {"max_per_node": 1}, {"max_per_rack": 2}, {"together_with": "a"}]


@pytest.mark.parametrize("policy", ["", "sparrow", "auto"])
@pytest.mark.parametrize("fields", FLOW_ONLY, ids=str)
def test_what_only_policy_flow_knows_is_refused_without_it(fields: dict[str, Any], policy: str) -> None:
    (name,) = fields
    error = refused(JobSpec(stages=[stage("a"), stage("b", **fields)], policy=policy))
    assert error.field == f"stages[1].{name}"
    assert f'nothing but with policy="flow"; this job\'s policy is {policy!r}' in str(error)
    if name != "together_with":
        assert refused(JobSpec([b""], policy=policy, **fields)).field == name
        JobSpec([b""], policy="flow", **fields).validate()
    JobSpec(stages=[stage("a"), stage("b", **fields)], policy="flow").validate()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, 'policy="flow"'),
        ({"policy": "sparrow"}, 'policy="flow"'),
        ({"policy": "auto", "expected_duration_s": 1e3}, 'policy="flow"'),
        ({"policy": "flow", "max_attempts": 1}, "False with max_attempts=1"),
    ],
)
def test_only_a_job_of_policy_flow_that_may_start_again_is_preemptible(fields: dict[str, Any], told: str) -> None:
    error = refused(JobSpec([b""], preemptible=True, **fields))
    assert error.field == "preemptible" and told in str(error)
    JobSpec([b""], preemptible=True, policy="flow", max_attempts=2).validate()


@pytest.mark.parametrize(
    ("stages", "field", "told"),
    [
        ([stage("a", together_with="a"), stage("b")], "stages[0].together_with", "the job's other stages: b"),
        ([stage("a", together_with="c"), stage("b")], "stages[0].together_with", "the job's other stages: b"),
        ([stage(together_with="a")], "together_with", "there are none"),
        ([stage("a", together_with="b"), stage("b", together_with="a")], "stages", " waits for "),
        ([stage("a", together_with="b"), stage("b", "a")], "stages", " waits for "),
        (
            [stage("a", together_with="c"), stage("b", "a"), stage("c", "b")],
            "stages",
            "that do not wait for themselves",
        ),
    ],
)
def test_no_stage_is_together_with_itself_or_with_what_waits_for_it(
    stages: list[StageSpec], field: str, told: str
) -> None:
    error = refused(JobSpec(stages=stages, policy="flow"))
    assert error.field == field and told in str(error)


def test_a_stage_states_no_higher_priority_than_its_job() -> None:
    error = refused(JobSpec(stages=[stage("a"), stage("b", priority=3)], priority=2))
    assert error.field == "stages[1].priority" and "from -1000 to 2, the job's own" in str(error)
    JobSpec(stages=[stage("a", priority=2), stage("b", priority=-5)], priority=2).validate()
    JobSpec(stages=[stage("a", priority=7)]).validate()  # The user's own may be higher: the scheduler knows.


def test_a_demand_and_prefetching_do_not_go_together() -> None:
    assert refused(JobSpec([b""], demand={"cpu": 1}, prefetch=2)).field == "prefetch"
    JobSpec([b""], demand={}, prefetch=2).validate()


def test_limits_themselves_and_all_good_shapes_are_allowed() -> None:
    task = TaskSpec(REF, "id", preferred=("a", "b"), inputs=["a", ("a", 0)], data={"n": 0, "m": 1 << 40})
    JobSpec(
        stages=(stage("b", "a", tasks=(task, b"", REF)), stage("a"), stage("c", "a", "b", tasks=[])),
        max_attempts=1000, queue_timeout_s=math.inf, wait_for_nodes_s=0, avoid=("other",), avoid_by="rack",
        on_client_lost="finish", priority=-1000, policy="flow", preemptible=True,
    ).validate()  # fmt: skip
    JobSpec([], common=REF, demand={"cpu": 0, "gpu": 1.5}, where=["gpu exists"], delay_s=0, task_timeout_s=1).validate()
    JobSpec([b""], lease_s=0.1, policy="flow", gang=True).validate()
    JobSpec([b""], lease_s=1_000_000, prefetch=3).validate()
    JobSpec(stages=[stage()]).validate()


def test_a_report_counts_by_the_text_of_a_status_too() -> None:
    report = JobReport("j", [TaskReport(0, TaskStatus.FINISHED, 1, "n", "", 0.0, None, None, None, None)])
    assert (report.count("finished"), report.count(TaskStatus.FINISHED), report.count("lost")) == (1, 1, 0)
    with pytest.raises(ValueError, match="done"):
        report.count("done")
