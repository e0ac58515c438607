"""Which failures of calls the Python executor says may pass: those with an exception of the job's `retry_on`."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

from frontends.python.executor import Function, _call
from sparrow_py import calls
from sparrow_py.executors.executor_protocol import Run
from sparrow_py.job import TaskStatus
from tests.support.tasks import Huge

REFUSED = ConnectionRefusedError("nobody listens")


class Strange(type):
    """A metaclass whose classes cannot be asked what belongs to them."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise OSError("strange")


class Odd(Exception, metaclass=Strange):
    """Such a class."""


def ended(function: Callable[..., Any], *retry_on: type[BaseException]) -> tuple[TaskStatus, bytes, str, bool]:
    """Status, result, error, and whether it is to run again, of one call."""
    common = calls.encode_function(function, retry_on=retry_on)
    return _call(Function(common), Run(1, 1, calls.encode_arguments((), {})), None)


def raise_refused() -> None:
    raise REFUSED


@pytest.mark.parametrize(
    ("retry_on", "retried"),
    [
        ((), False),
        ((TimeoutError,), False),
        ((ConnectionRefusedError,), True),
        ((TimeoutError, ConnectionError), True),
        ((BaseException,), True),
    ],
)
def test_exceptions_of_these_classes_and_those_that_inherit_from_them(
    retry_on: tuple[type[BaseException], ...], retried: bool
) -> None:
    status, result, error, retry = ended(raise_refused, *retry_on)
    assert (status, error, retry) == (TaskStatus.FAILED, "ConnectionRefusedError: nobody listens", retried)
    assert isinstance(pickle.loads(result)[0], ConnectionRefusedError)


def test_a_class_that_travels_by_value_is_that_which_the_function_raises() -> None:
    class Busy(Exception):
        pass

    def work() -> None:
        raise Busy("too much to do")

    assert ended(work, Busy)[3]


def test_a_call_that_ends_its_process_may_be_retried() -> None:
    assert ended(sys.exit, SystemExit)[3] and not ended(sys.exit, Exception)[3]


def test_what_finishes_and_what_cannot_be_returned_is_not_retried() -> None:
    assert not ended(dict, Exception)[3]
    status, _, error, retry = ended(lambda: (one for one in ()), BaseException)
    assert status is TaskStatus.FAILED and "cannot be pickled" in error and not retry


def test_a_call_for_whose_result_there_was_no_memory_is_retried_if_memory_errors_are() -> None:
    assert ended(Huge, MemoryError)[3] and not ended(Huge, OSError)[3]


def test_classes_that_cannot_be_looked_at_are_named_in_the_exception() -> None:
    _, result, _, retry = ended(raise_refused, Odd)
    exception, _ = pickle.loads(result)
    assert not retry and any("could not look at retry_on: OSError: strange" in note for note in exception.__notes__)
