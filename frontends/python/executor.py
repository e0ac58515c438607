"""The Python executor: `python -m frontends.python.executor`, one warm process per slot.

It runs the calls it is given in order. Functions are unpickled once per job. Between calls it
looks at its socket at most once a millisecond, and it returns results as soon as it has nothing
left to run or, between two calls, a millisecond has passed: very short calls share their
messages. (One that turns out long holds up the results of those just before it; only a job with
`prefetch`, which is for short calls, has any given to a worker ahead of time.)
"""

from __future__ import annotations

import contextlib
import gc
import io
import pickle
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sparrow_py import executor_protocol as x
from sparrow_py.calls import APP, RUNTIME, PythonCommon, decode_call, encode_value
from sparrow_py.errors import shown
from sparrow_py.exception_pickling import encode_exception, text_of
from sparrow_py.executor_connection import ExecutorConnection
from sparrow_py.executor_files import using
from sparrow_py.job import TaskStatus
from sparrow_py.task_context import enter_process
from sparrow_py.task_limits import NO_LIMITS, TaskLimits, allow_cpu

LOOK_EVERY_S = 0.001
OUTPUT_CHARS_MAX = 65536
"""Characters of each of a call's captured streams that are returned."""
ERROR_CHARS_MAX = 500
RESULT_BYTES_MAX = 16 << 30
"""Of one result. What a node monitor keeps of all of them is its operator's choice."""
INLINE_BYTES_MAX = x.INLINE_BYTES_MAX
Outcome = tuple[TaskStatus, x.Data, str]


class Function:
    """A job's function, unpickled when first called."""

    def __init__(self, data: x.Data) -> None:
        self._function: Callable[..., Any] | None = None
        self._error = ""
        try:
            self._common = using(data, _decode_common)
        except (msgspec.MsgspecError, OSError) as error:  # The job's tasks fail, the worker lives.
            self._common = PythonCommon(b"")
            self._error = f"the job's common bytes are not those of a Python function: {error}"
        self.capture_output = self._common.capture_output

    def __call__(self, payload: x.Data, inputs: Sequence[x.Data] = ()) -> Any:
        if self._function is None:
            if self._error:
                raise ValueError(self._error)
            self._function = pickle.loads(self._common.function)
        if type(payload) is bytes and not inputs:
            arguments = pickle.loads(payload)  # As `decode_call` does, which this spares the call.
        else:
            arguments = using(payload, lambda content: decode_call(content, inputs))
        if self._common.chunked:
            return [self._function(*args) for args in arguments]
        args, kwargs = arguments
        return self._function(*args, **kwargs)


class PythonExecutor:
    """Runs what the node monitor at the other end of the connection sends."""

    def __init__(self, connection: ExecutorConnection, limits: TaskLimits = NO_LIMITS) -> None:
        self._connection = connection
        self._cpu_s = limits.cpu_s
        self._functions: dict[int, Function] = {0: Function(b"")}
        """By number of their common bytes; 0: the job has none."""
        self._runs: deque[x.Run] = deque()
        self._ended: list[x.ExecutorMessage] = []

    def serve(self) -> None:
        """Run calls until the node monitor closes the connection."""
        connection, runs, clock = self._connection, self._runs, time.perf_counter
        looked_s = clock()
        try:
            while True:
                if not runs or clock() - looked_s > LOOK_EVERY_S:
                    if self._ended:
                        connection.send(self._ended)
                        self._ended.clear()
                    for message in connection.receive(wait=not runs):
                        self._handle(message)
                    looked_s = clock()
                if runs:
                    self._ended.append(self._run(runs.popleft()))
        except (EOFError, ConnectionError):
            return

    def _handle(self, message: Any) -> None:
        kind = type(message)
        if kind is x.Run:
            self._runs.append(message)
        elif kind is x.Common:
            self._functions[message.common] = Function(message.data)
        elif kind is x.ForgetCommon:
            self._functions.pop(message.common, None)
        elif kind is x.Revoke:
            revoked = [run for run in self._runs if run.run in message.runs]
            for run in revoked:
                self._runs.remove(run)
            self._ended.append(x.Returned([run.run for run in revoked]))

    def _run(self, run: x.Run) -> x.Done:
        if self._cpu_s:
            allow_cpu(self._cpu_s)
        function = self._functions[run.common]
        if function.capture_output:
            return self._run_captured(run, function)
        started_at_s, started_s = time.time(), time.perf_counter()
        status, result, error = _call(function, run)
        if len(result) <= INLINE_BYTES_MAX:
            return x.Done(run.run, status, result, error, started_at_s, time.perf_counter() - started_s)
        outcome = self._stored(status, result, error)
        return x.Done(run.run, *outcome, started_at_s, time.perf_counter() - started_s)

    def _run_captured(self, run: x.Run, function: Function) -> x.Done:
        out, err = io.StringIO(), io.StringIO()
        started_at_s, started_s = time.time(), time.perf_counter()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status, result, error = _call(function, run)
        outcome: Outcome = (status, result, error)
        if len(result) > INLINE_BYTES_MAX:
            outcome = self._stored(status, result, error)
        service_s = time.perf_counter() - started_s
        printed = (_sendable(out.getvalue(), OUTPUT_CHARS_MAX), _sendable(err.getvalue(), OUTPUT_CHARS_MAX))
        return x.Done(run.run, *outcome, started_at_s, service_s, *printed)

    def _stored(self, status: TaskStatus, result: bytes, error: str) -> Outcome:
        """The same with the result in a file; a failure if that cannot be written."""
        try:
            return status, self._connection.data(result), error
        except OSError as reason:
            if status is TaskStatus.FAILED:
                return status, b"", error
            text = f"the result of {len(result)} bytes cannot be kept on the node: {reason.strerror or reason}"
            return _failed(OSError(reason.errno, text))


def _call(function: Function, run: x.Run) -> tuple[TaskStatus, bytes, str]:
    """Status, result (however large) and error of one call."""
    try:
        value = function(run.payload, run.inputs)
    except BaseException as error:  # sys.exit() in a task ends the task, not the worker.
        return _failed(error)
    try:
        result = encode_value(value)
    except Exception as error:
        described, why = f"{text_of(shown, value)} of type {type(value).__qualname__}", text_of(str, error)
        return _failed(TypeError(f"the result {described} cannot be pickled: {why}"))
    except BaseException as error:  # As in the call itself.
        return _failed(error)
    if len(result) > RESULT_BYTES_MAX:
        return _failed(ValueError(f"the result is {len(result)} bytes; at most {RESULT_BYTES_MAX} can be returned"))
    return TaskStatus.FINISHED, result, ""


def _decode_common(content: Any) -> PythonCommon:
    return msgspec.msgpack.decode(content, type=PythonCommon)


def _sendable(text: str, chars_max: int) -> str:
    """The text's beginning without lone surrogates, which messages cannot hold."""
    return text[:chars_max].encode("utf-8", "backslashreplace").decode()


def _failed(error: BaseException) -> tuple[TaskStatus, bytes, str]:
    """The exception and its traceback, pickled; the traceback starts in the task's own code."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        BaseException.add_note(
            error,
            f"the worker (Python {RUNTIME}, {sys.executable}) has no module {error.name!r}: install it there, "
            f"or ship it with cloudpickle.register_pickle_by_value",
        )
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    summary = _sendable(f"{type(error).__name__}: {text_of(str, error)}", ERROR_CHARS_MAX)
    BaseException.__setattr__(error, "__traceback__", None)  # Whatever the class makes of attributes.
    return TaskStatus.FAILED, encode_exception(error, text), summary


def main() -> None:
    """Connect to the node monitor that started this process, and serve it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        connection = ExecutorConnection.from_environment(APP, runtime=RUNTIME)
    except OSError as error:  # The node monitor died meanwhile.
        sys.exit(f"sparrow python executor: {error}")
    executor = PythonExecutor(connection, TaskLimits.from_environment())
    enter_process()
    gc.freeze()
    executor.serve()


if __name__ == "__main__":
    main()
