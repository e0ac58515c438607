"""Python calls as tasks of the app `python`: how they and their outcomes are encoded.

The function is the job's common bytes, pickled once; each task's payload is its arguments.
Pickle is only ever decoded in the Python executor and in the client that asked for it.
"""

from __future__ import annotations

import itertools
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle
import msgspec

from sparrow_py.errors import RemoteTraceback, TaskFailed, TaskLost, shown
from sparrow_py.job import TaskStatus
from sparrow_py.messages import Outcome

APP = "python"
RUNTIME = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""What the workers must run too: pickled functions are good for one minor version of Python."""

_PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
"""Types that pickle itself encodes well; anything else may refer to `__main__`, which cloudpickle sees to."""
_NO_CALL = pickle.dumps(((), {}), protocol=5)


class PythonCommon(msgspec.Struct, array_like=True, frozen=True):
    """Common bytes of a job of calls. `chunked`: each payload holds several calls' arguments."""

    function: bytes
    capture_output: bool = False
    chunked: bool = False


def encode_function(function: Callable[..., Any], *, capture_output: bool = False, chunked: bool = False) -> bytes:
    """The common bytes for calls of `function`; raises what pickling raises if it cannot be pickled."""
    pickled = pickle.dumps(function, 5) if _importable(function) else cloudpickle.dumps(function, protocol=5)
    return msgspec.msgpack.encode(PythonCommon(pickled, capture_output, chunked))


def _importable(function: Callable[..., Any]) -> bool:
    """Whether workers get the function by importing its module, so that its name is all there is to pickle."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module is None or module == "__main__" or cloudpickle.list_registry_pickle_by_value():
        return False
    return getattr(sys.modules.get(module), name, None) is function


def encode_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The payload of one call; raises what pickling raises if an argument cannot be pickled."""
    if not kwargs:
        if not args:
            return _NO_CALL
        if all(type(argument) in _PLAIN for argument in args):
            return pickle.dumps((args, kwargs), protocol=5)
    return bytes(cloudpickle.dumps((args, kwargs), protocol=5))


def encode_chunks(iterables: Iterable[Iterable[Any]], chunksize: int) -> Iterator[bytes]:
    """The payloads of a `chunked` function's calls over the iterables, `chunksize` calls to each."""
    arguments = zip(*iterables, strict=False)
    while chunk := list(itertools.islice(arguments, chunksize)):
        yield bytes(cloudpickle.dumps(chunk, protocol=5))


def encode_value(value: Any) -> bytes:
    """A result as the worker returns it."""
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=5)
    return bytes(cloudpickle.dumps(value, protocol=5))


def decode_value(outcome: Outcome) -> Any:
    """The value of a finished task."""
    return pickle.loads(outcome.result)


def failure(outcome: Outcome, app: str) -> BaseException:
    """The exception of a task that failed or was lost: its own if it can be shown, with the remote traceback."""
    if outcome.status is TaskStatus.LOST:
        return TaskLost(f"task {outcome.task} was lost: {outcome.error}")
    own: TaskFailed = TaskFailed(f"task {outcome.task} failed on {outcome.node}: {outcome.error}")
    own.result = outcome.result
    if app != APP or not outcome.result:
        return own
    try:
        exception: object
        exception, text = pickle.loads(outcome.result)
    except Exception as error:
        own.add_note(f"its exception could not be unpickled here: {shown(error)}")
        return own
    if not isinstance(exception, BaseException):
        return own
    if isinstance(exception, StopIteration):  # Futures cannot carry it, and generators would end by it.
        exception = RuntimeError(f"the task raised {shown(exception)}")
    BaseException.__setattr__(exception, "__cause__", RemoteTraceback(text))  # A frozen class's own refuses.
    return exception
