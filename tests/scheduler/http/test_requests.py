"""Bodies of submissions have the fields of the library's jobs, stages and tasks, with the same defaults."""

from dataclasses import fields
from typing import Any

import msgspec
import pytest

from scheduler.http.requests import JobRequest, StageRequest, TaskRequest, decode, task_count
from sparrow_py.errors import InvalidRequest
from sparrow_py.job import JobSpec, StageSpec, TaskSpec


def of(kind: Any) -> set[str]:
    return {field.name for field in fields(kind) if field.name != "_"}


@pytest.mark.parametrize(
    ("request_kind", "spec", "more"),
    [
        (TaskRequest, TaskSpec, {"payload_base64"}),
        (StageRequest, StageSpec, {"common_base64"}),
        (JobRequest, JobSpec, {"common_base64", "user"}),
    ],
)
def test_they_have_the_fields_of_the_library(request_kind: Any, spec: Any, more: set[str]) -> None:
    assert set(request_kind.__struct_fields__) == of(spec) | more


@pytest.mark.parametrize(("request_kind", "spec"), [(StageRequest, StageSpec), (JobRequest, JobSpec)])
def test_they_have_its_defaults(request_kind: Any, spec: Any) -> None:
    ours = {field.name: field.default for field in msgspec.structs.fields(request_kind)}
    for field in fields(spec):
        if field.name not in ("app", "common", "_"):
            assert ours[field.name] == field.default, field.name


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b'{"app": "a"}', 0),
        (b'{"tasks": [{}, {"payload": {"tasks": [{}, {}]}}, {"id": "x"}]}', 3),
        (b'{"stages": [{"tasks": [{}]}, {"name": "b"}, {"tasks": [{}, {}]}], "name": "tasks: [{}]"}', 3),
        (b'{"tasks": [{}], "stages": [{"tasks": [{}]}], "nonsense": [{}, {}]}', 2),
    ],
)
def test_tasks_are_counted_without_being_read(body: bytes, count: int) -> None:
    assert task_count(body) == count


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"tasks": 3}', b'{"tasks": [1]}', b'{"stages": {}}'])
def test_what_cannot_be_counted_is_left_to_what_reads_it(body: bytes) -> None:
    assert task_count(body) == 0
    with pytest.raises(InvalidRequest):
        decode(body)
