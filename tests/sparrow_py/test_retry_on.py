"""`retry_on`: calls that run again, later, after an exception that may pass; what the user sees, and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparrow_py import CallOptions, CallStage, Client, InvalidRequest, JobSpec, RetryPolicy, Speculation, TaskStatus
from sparrow_py.call_jobs import RETRY_ON_MAX, calls_job
from sparrow_py.speculation import check_job
from tests.support.waiting import TIMEOUT_S

SOON = RetryPolicy(attempts=3, first_delay_s=0.01, factor=1, longest_delay_s=0.01)


def knock(directory: Path, times: int, kind: type[Exception] = TimeoutError) -> int:
    """As a service that answers only when it is asked for so many times."""
    knocks = len(list(directory.iterdir())) + 1
    (directory / str(knocks)).touch()
    if knocks < times:
        raise kind(f"no answer to knock {knocks}")
    return knocks


def test_a_call_runs_again_until_it_answers(client: Client, tmp_path: Path) -> None:
    future = client.with_options(retry_on=(ConnectionError, TimeoutError), retry=SOON).submit(knock, tmp_path, 3)
    assert future.result(TIMEOUT_S) == 3
    report = future.report
    assert report is not None and report.attempts == 3
    assert report.earlier_errors == ("TimeoutError: no answer to knock 1", "TimeoutError: no answer to knock 2")


def test_the_last_exception_is_raised_when_it_never_does(client: Client, tmp_path: Path) -> None:
    future = client.with_options(retry_on=(TimeoutError,), retry=SOON).submit(knock, tmp_path, 9)
    with pytest.raises(TimeoutError, match="no answer to knock 3"):
        future.result(TIMEOUT_S)
    assert future.report is not None and (future.report.status, future.report.attempts) == (TaskStatus.FAILED, 3)


def test_another_exception_is_raised_at_once(client: Client, tmp_path: Path) -> None:
    future = client.with_options(retry_on=[TimeoutError], retry=SOON).submit(knock, tmp_path, 9, LookupError)
    with pytest.raises(LookupError, match="no answer to knock 1"):
        future.result(TIMEOUT_S)


# ---- jobs of calls ---------------------------------------------------------------------------


def test_the_policy_is_the_default_one_unless_another_is_given() -> None:
    def job(options: CallOptions) -> JobSpec:
        return calls_job(options, abs, [(1,)], "")

    assert job(CallOptions()).retry is None
    assert job(CallOptions(retry_on=(TimeoutError,))).retry == RetryPolicy()
    assert job(CallOptions(retry_on=(TimeoutError,), retry=SOON)).retry == SOON
    assert job(CallOptions()).common == job(CallOptions(retry_on=[])).common


def test_each_stage_has_its_own() -> None:
    stages = [
        CallStage("a", abs, [(1,)], options=CallOptions(retry_on=(TimeoutError,), retry=SOON)),
        CallStage("b", abs, [(1,)], after=["a"]),
    ]
    assert [stage.retry for stage in CallOptions().stages_job("", stages).stages] == [SOON, None]


# ---- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({"retry_on": TimeoutError}, "retry_on", "a tuple of exception classes, of one as in (TimeoutError,)"),
        ({"retry_on": "TimeoutError"}, "retry_on", "a list"),
        ({"retry_on": None}, "retry_on", "a list"),
        ({"retry_on": (OSError, TimeoutError())}, "retry_on[1]", "a class of exceptions, as TimeoutError is"),
        ({"retry_on": (int,)}, "retry_on[0]", "a class of exceptions, as TimeoutError is"),
        ({"retry_on": [OSError] * (RETRY_ON_MAX + 1)}, "retry_on", f"at most {RETRY_ON_MAX}"),
        ({"retry": SOON}, "retry", "None without retry_on"),
        ({"retry_on": (OSError,), "retry": 3}, "retry", "a RetryPolicy, or None"),
        (
            {"retry_on": (OSError,), "max_attempts": 1},
            "retry_on",
            "OSError'>,) is not valid; allowed: () with max_attempts=1",
        ),
        ({"retry_on": (OSError,), "retry_failed": True}, "retry_failed", "False beside a retry policy"),
        ({"retry_on": (OSError,), "speculate": Speculation()}, "retry_on", "() with speculate"),
    ],
)
def test_what_cannot_be_is_named(fields: dict[str, Any], field: str, told: str) -> None:
    options = CallOptions(**fields)
    with pytest.raises(InvalidRequest) as caught:
        check_job(calls_job(options, abs, [(1,)], ""), options.speculate)
    assert caught.value.field == field and told in str(caught.value)


def test_a_class_that_cannot_be_pickled_is_named() -> None:
    class Held(Exception):
        lock = __import__("threading").Lock()

    with pytest.raises(TypeError, match=r"retry_on\[1\]"):
        calls_job(CallOptions(retry_on=(OSError, Held)), abs, [(1,)], "")
