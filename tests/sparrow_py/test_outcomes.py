"""Outcomes as values and exceptions."""

import pickle

import pytest

from sparrow_py import calls
from sparrow_py.errors import RemoteTraceback, TaskFailed, TaskLost
from sparrow_py.futures import outcomes
from sparrow_py.job import TaskStatus
from sparrow_py.wire.messages import Outcome


def outcome(status: TaskStatus, result: bytes = b"", error: str = "why") -> Outcome:
    return Outcome("job", 4, status, result, error, 1, "node-1", None, None, None)


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", [1, {"a": (2,)}], 1.5])
def test_values(value: object) -> None:
    assert outcomes.outcome_value(outcome(TaskStatus.FINISHED, calls.encode_value(value)), "python") == (value, None)


def test_a_failure_is_the_tasks_own_exception_with_the_remote_traceback() -> None:
    error = outcomes.failure(outcome(TaskStatus.FAILED, pickle.dumps((KeyError("k"), "the trace"))), "python")
    assert isinstance(error, KeyError)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert str(error.__cause__) == "\nthe trace"


def test_a_failure_that_cannot_be_shown_is_task_failed() -> None:
    for result in (b"", b"garbage", pickle.dumps(("no exception", "trace"))):
        error = outcomes.failure(outcome(TaskStatus.FAILED, result), "python")
        assert isinstance(error, TaskFailed)
        assert str(error) == "task 4 failed on node-1: why"
        assert error.result == result


def test_a_failure_of_a_task_that_never_ran_is_at_no_node() -> None:
    error = outcomes.failure(Outcome("job", 4, TaskStatus.FAILED, b"", "why", 0, "", None, None, None), "python")
    assert str(error) == "task 4 failed: why"


def test_a_failure_of_another_app_is_never_unpickled() -> None:
    result = pickle.dumps((KeyError("k"), "trace"))
    error = outcomes.failure(outcome(TaskStatus.FAILED, result), "command")
    assert isinstance(error, TaskFailed)
    assert error.result == result


def test_a_lost_task() -> None:
    error = outcomes.failure(outcome(TaskStatus.LOST), "python")
    assert isinstance(error, TaskLost)
    assert str(error) == "task 4 was lost: why"
