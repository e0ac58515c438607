"""Jobs as HTTP has them: the library's job in JSON, and mistakes that are named."""

import json
from typing import Any

import pytest

from scheduler.http.submissions import read_job, read_submission
from sparrow_py.errors import InvalidRequest
from sparrow_py.job import FLOW_FROM_S, INPUTS_MAX, RetryPolicy, TaskSpec

PAYLOAD_BYTES_MAX = 1000


def body(**job: Any) -> bytes:
    return json.dumps(job).encode()


def test_every_field() -> None:
    given: dict[str, Any] = {
        "job_id": "j", "name": "job", "app": "app", "after": [], "common_base64": "AAE=", "probe_ratio": 3,
        "prefetch": 2, "expected_duration_s": 0.5, "runtime": "r", "demand": {}, "where": ["zone == eu"],
        "delay_s": 1, "task_timeout_s": 9, "max_attempts": 2, "retry_failed": True, "queue_timeout_s": 7,
        "wait_for_nodes_s": 8, "avoid": ["k"], "avoid_by": "rack", "on_client_lost": "finish", "report_placed": True,
        "priority": -2, "policy": "flow", "preemptible": False, "gang": True, "max_per_node": 3, "max_per_rack": 4,
        "together_with": "", "lease_s": 2.5,
    }  # fmt: skip
    task = {"payload": "p", "id": "i", "preferred": ["n"], "data": {"n": 7}, "data_bytes": 9}
    user, spec = read_job(body(user="me", tasks=[task, {}], **given), PAYLOAD_BYTES_MAX)
    assert user == "me"
    assert spec.common == b"\0\1"
    assert list(spec.tasks) == [TaskSpec(b'"p"', "i", preferred=("n",), data={"n": 7}, data_bytes=9), b""]
    for name, value in given.items():
        if name != "common_base64":
            assert getattr(spec, name) == (tuple(value) if isinstance(value, list) else value), name
    assert read_job(body(app="app", policy="flow", preemptible=True), PAYLOAD_BYTES_MAX)[1].preemptible


@pytest.mark.parametrize(
    ("stated", "plane", "sent"), [("", "sparrow", ""), ("", "flow", "flow"), ("flow", "flow", "flow")]
)
def test_a_job_is_for_the_policy_of_the_scheduler_that_it_is_posted_to(stated: str, plane: str, sent: str) -> None:
    text = body(app="a", policy=stated)
    assert read_submission(text, PAYLOAD_BYTES_MAX, plane).job.submission.policy == sent


@pytest.mark.parametrize(("stated", "plane"), [("flow", "sparrow"), ("sparrow", "flow")])
def test_a_job_of_another_policy_is_refused(stated: str, plane: str) -> None:
    with pytest.raises(InvalidRequest, match=f"policy: '{stated}' is not valid; allowed: {plane}, or empty"):
        read_submission(body(app="a", policy=stated), PAYLOAD_BYTES_MAX, plane)


LONG = {"expected_duration_s": FLOW_FROM_S}
NOT_ALL_LONG = {"stages": [{"name": "s", "app": "a", **LONG}, {"name": "t", "app": "a"}]}


@pytest.mark.parametrize(("job", "plane"), [({"app": "a"}, "sparrow"), ({"app": "a", **LONG}, "flow")])
def test_auto_is_the_policy_that_is_for_so_long_tasks(job: dict[str, Any], plane: str) -> None:
    submission = read_submission(body(policy="auto", **job), PAYLOAD_BYTES_MAX, plane)
    assert submission.job.submission.policy == plane


@pytest.mark.parametrize(
    ("job", "plane", "said"),
    [
        (
            {"app": "a", **LONG},
            "sparrow",
            "flow for this job, as tasks of all its stages are expected to take 10 s or more",
        ),
        ({"app": "a", "expected_duration_s": 9.9}, "flow", "sparrow for this job, as it does not say that tasks of"),
        (NOT_ALL_LONG, "flow", "sparrow for this job, as it does not say"),
    ],
)
def test_auto_is_refused_where_another_policy_is_for_so_long_tasks(job: dict[str, Any], plane: str, said: str) -> None:
    with pytest.raises(
        InvalidRequest, match=f"^policy: this scheduler has policy {plane}; auto means {said}"
    ) as refusal:
        read_submission(body(policy="auto", **job), PAYLOAD_BYTES_MAX, plane)
    assert refusal.value.field == "policy"


def test_a_retry_policy_is_an_object_of_its_fields() -> None:
    stages = [{"name": "s", "app": "a", "retry": {"attempts": 2, "jitter": 0}}, {"name": "t", "app": "a"}]
    spec = read_job(body(stages=stages), PAYLOAD_BYTES_MAX)[1]
    assert [stage.retry for stage in spec.stages] == [RetryPolicy(2, jitter=0), None]
    assert read_job(body(app="a", retry={}), PAYLOAD_BYTES_MAX)[1].retry == RetryPolicy()


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"retry": {"attempts": 0}}, "retry.attempts"),
        ({"retry": {"first_delay_s": 9, "longest_delay_s": 8}}, "retry.longest_delay_s"),
        ({"retry": {}, "max_attempts": 1}, "retry"),
        ({"retry": {}, "retry_failed": True}, "retry_failed"),
    ],
)
def test_a_retry_policy_that_cannot_be_is_named(job: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_job(body(app="a", **job), PAYLOAD_BYTES_MAX)
    assert caught.value.field == field


def test_stages_have_a_priority_of_their_own() -> None:
    stages = [{"name": "s", "app": "a", "priority": -1}, {"name": "t", "app": "a"}]
    _, spec = read_job(body(stages=stages, priority=3), PAYLOAD_BYTES_MAX)
    assert (spec.priority, [stage.priority for stage in spec.stages]) == (3, [-1, None])


def test_a_payload_is_the_text_that_stands_there() -> None:
    text = b'{"app":"a","tasks":[{"payload": {"b" : 1.00, "a":[]} },{"payload":null}],"common":12345678901234567890}'
    _, spec = read_job(text, PAYLOAD_BYTES_MAX)
    assert list(spec.tasks) == [b'{"b" : 1.00, "a":[]}', b"null"]
    assert spec.common == b"12345678901234567890"


@pytest.mark.parametrize(
    ("text", "field", "part"),
    [
        (b"", "body", "JSON"),
        (b"[]", "body", "an object"),
        (b"null", "body", "an object"),
        (b'{"app":"a"', "body", "JSON"),
        (b'{"app":"a"} x', "body", "JSON"),
        (b'{"app":"\xff"}', "body", "UTF-8"),
        (b'{"app":"a","tasks":[{"payload":"\xff"}]}', "body", "UTF-8"),
        (b'{"app":"a","tasks":[{"payload":' + b"[" * 40_000 + b"]" * 40_000 + b"}]}", "body", "nested"),
        (b"{}", "app", "''"),
        (b'{"app":1}', "app", "1 is not valid; allowed: text"),
        (b'{"app":"a","bogus":1}', "bogus", "on_client_lost"),
        (b'{"app":"a","tasks":[{},{"payloads":1}]}', "tasks[1].payloads", "payload_base64"),
        (b'{"app":"a","tasks":{}}', "tasks", "{} is not valid; allowed: a list"),
        (b'{"app":"a","tasks":[1]}', "tasks[0]", "an object"),
        (b'{"app":"a","tasks":[{"payload":1,"payload_base64":""}]}', "tasks[0].payload_base64", "no such field beside"),
        (b'{"app":"a","tasks":[{"payload_base64":"?"}]}', "tasks[0].payload_base64", "'?' is not valid; allowed: b"),
        (b'{"app":"a","tasks":[{"id":"x"},{"id":"x"}]}', "tasks[1].id", "no other task"),
        (b'{"app":"a","tasks":[{"inputs":["s"]}]}', "tasks[0].inputs", "after"),
        (b'{"app":"a","tasks":[{"inputs":[["s",1,2]]}]}', "tasks[0].inputs[0]", "length 2"),
        (b'{"app":"a","common":1,"common_base64":""}', "common_base64", "no such field beside common"),
        (b'{"app":"a","max_attempts":0}', "max_attempts", "0 is not valid; allowed: a whole number from 1"),
        (b'{"app":"a","max_attempts":1.5}', "max_attempts", "1.5 is not valid; allowed: a whole number"),
        (b'{"app":"a","retry_failed":"yes"}', "retry_failed", "true or false"),
        (b'{"app":"a","probe_ratio":1e999}', "probe_ratio", "number"),
        (b'{"app":"a","demand":{"cpu":"x"}}', "demand[...]", "a number"),
        (b'{"app":"a","demand":{"cpu":-1}}', "demand['cpu']", "-1"),
        (b'{"app":"a","where":["zone"]}', "where[0]", "NAME == VALUE"),
        (b'{"app":"a","on_client_lost":"x"}', "on_client_lost", "cancel or finish"),
        (b'{"app":"a","policy":"auto!"}', "policy", "'auto!'"),
        (b'{"app":"a","gang":true}', "gang", 'policy="flow"'),
        (b'{"app":"a","preemptible":true}', "preemptible", 'policy="flow"'),
        (b'{"app":"a","tasks":[{"data":{"n":-1}}]}', "tasks[0].data['n']", "-1"),
        (b'{"app":"a","tasks":[{"data":["n"]}]}', "tasks[0].data", "an object"),
        (b'{"app":"a","tasks":[{"data":{"n":7},"data_bytes":6}]}', "tasks[0].data_bytes", "6"),
        (b'{"stages":[{"name":"s","app":"a","priority":2}],"priority":1}', "stages[0].priority", "the job's own"),
        (b'{"stages":[{"name":"s","app":"a","policy":"flow"}]}', "stages[0].policy", "there is no such field"),
        (b'{"app":"a","retry":{"times":2}}', "retry.times", "attempts"),
        (b'{"stages":[{"name":"s","app":"a","retry":{"times":2}}]}', "stages[0].retry.times", "attempts"),
        (b'{"app":"a","user":""}', "user", "non-empty"),
        (b'{"app":"a","name":"\\u0000"}', "name", "printable"),
        (b'{"app":"a","stages":[{"name":"s","app":"a"}]}', "app", "no such field beside stages"),
        (b'{"common":1,"stages":[{"name":"s","app":"a"}]}', "common", "no such field beside stages"),
        (b'{"tasks":[{}],"stages":[{"name":"s","app":"a"}]}', "tasks", "no tasks beside stages"),
        (b'{"stages":[{"name":"s"}]}', "stages[0].app", "missing"),
        (b'{"stages":[{"name":"s","app":""}]}', "stages[0].app", "non-empty"),
        (b'{"stages":[{"name":"s","app":"a","job_id":"x"}]}', "stages[0].job_id", "there is no such field"),
        (b'{"stages":[{"name":"s","app":"a","after":["s"]}]}', "stages", "come after themselves"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text: bytes, field: str, part: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_job(text, PAYLOAD_BYTES_MAX)
    assert caught.value.field == field
    assert part in str(caught.value)
    assert str(caught.value).startswith(f"{field}")


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"app": "a", "tasks": [{}, {"payload": "x" * 1000}]}, "tasks[1].payload"),
        ({"app": "a", "common": "x" * 1000}, "common"),
        ({"stages": [{"name": "s", "app": "a", "tasks": [{"payload": "x" * 1000}]}]}, "stages[0].tasks[0].payload"),
    ],
)
def test_payloads_that_fit_no_frame(job: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match="at most 1000 bytes") as caught:
        read_job(body(**job), PAYLOAD_BYTES_MAX)
    assert caught.value.field == field


def test_more_inputs_than_a_task_may_have() -> None:
    stages = [
        {"name": "a", "app": "app", "tasks": [{}] * (INPUTS_MAX // 2 + 1)},
        {"name": "b", "app": "app", "after": ["a"], "tasks": [{}, {"inputs": ["a", "a"]}]},
    ]
    with pytest.raises(InvalidRequest, match=f"at most {INPUTS_MAX}") as caught:
        read_job(body(stages=stages), PAYLOAD_BYTES_MAX)
    assert caught.value.field == "stages[1].tasks[1].inputs"


def test_values_of_large_bodies_are_not_looked_up() -> None:
    text = b'{"app":"a","common":"' + b"x" * (1 << 20) + b'","retry_failed":1}'
    with pytest.raises(InvalidRequest) as caught:
        read_job(text, PAYLOAD_BYTES_MAX)
    assert str(caught.value) == "retry_failed: allowed: true or false"
