"""The Python executor: `python -m frontends.python.executor`, one warm process per slot.

It runs the calls it is given in order. Functions are unpickled once per job, or less often
(`kept_functions`). Between calls it
looks at its socket at most once a millisecond, and it returns results as soon as it has nothing
left to run or, between two calls, a millisecond has passed: very short calls share their
messages. (A call that turns out long holds up the results of those just before it; only a job with
`prefetch`, which is for short calls, has calls given to a worker ahead of time.)
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any

import msgspec

from frontends.python.kept_functions import KeptFunctions, is_its_modules, pickled_by_name
from frontends.python.nested_task import NestedTask
from frontends.python.shipped_modules import ShippedModules
from frontends.python.streams import TaskStreams
from frontends.python.yielding import Yields
from sparrow_py.calls import APP, RUNTIME, decode_call, encode_value, function_name
from sparrow_py.embedded.output_channel import OutputChannel, WorkerOutput
from sparrow_py.errors import shown
from sparrow_py.exception_pickling import encode_exception, text_of
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_connection import ExecutorConnection
from sparrow_py.executors.executor_files import using
from sparrow_py.executors.usage import UsageMeter
from sparrow_py.job import TaskStatus
from sparrow_py.limits.task_limits import NO_LIMITS, TaskLimits, allow_cpu
from sparrow_py.processes.process_control import line_buffer_c_output
from sparrow_py.task_context import enter_process
from sparrow_py.tracing.in_task import in_trace
from sparrow_py.tracing.trace_context import TraceContext, TracedCommon

LOOK_EVERY_S = 0.001
OUTPUT_CHARS_MAX = 65536
"""Characters of each of a call's captured streams that are returned."""
ERROR_CHARS_MAX = 500
NAMELESS = "task"
"""The name in marks of lines for a function whose own name cannot be shown."""
RESULT_BYTES_MAX = 16 << 30
"""Limit on one result. The operator of a node monitor limits how much it keeps of all results."""
INLINE_BYTES_MAX = x.INLINE_BYTES_MAX
ASYNCIO_DIRECTORY = str(Path(traceback.__file__).with_name("asyncio")) + os.sep
"""Frames of these files lie between the executor and a coroutine."""
Outcome = tuple[TaskStatus, x.Data, str]
"""Status, result and error of a run."""


class Function:
    """A job's function, unpickled when first called; `keep` is told of it then if other jobs may have it, too."""

    def __init__(self, data: x.Data, keep: Callable[[Function], None] | None = None) -> None:
        self._function: Callable[..., Any] | None = None
        self._retry_on: tuple[type[BaseException], ...] | None = None
        self._keep = keep
        self._error = ""
        try:
            self._common = using(data, _decode_common)
        except (msgspec.MsgspecError, OSError) as error:  # The job's tasks fail, the worker lives.
            self._common = TracedCommon(b"")
            self._error = f"the job's common bytes are not those of a Python function: {error}"
        self.capture_output = self._common.capture_output
        self.trace = self._common.trace
        """The trace that its calls belong to; None if its job is not traced."""
        self.modules = self._common.modules
        """What its calls can import besides what the worker has."""
        self.name = self._common.name
        """The mark of lines that its calls print; empty until the function is loaded, unless the job has a name."""

    def load(self) -> Callable[..., Any]:
        """Unpickle the function, which may raise anything; `ValueError` if the common bytes are not a function."""
        if self._error:
            raise ValueError(self._error)
        function: Callable[..., Any] = pickle.loads(self._common.function)
        self._function = function
        self.name = self.name or function_name(function).rpartition("<locals>.")[2] or NAMELESS
        if self._keep is not None and self.trace is None and pickled_by_name(function, self._common.function):
            self._keep(self)
        self._keep = None
        return function

    def stands(self) -> bool:
        """Whether unpickling it again would give the same object; for a function that was kept."""
        return self._function is not None and is_its_modules(self._function)

    def retries(self, error: BaseException) -> bool:
        """Whether a call that raised this is to run again, as its options say."""
        if not self._common.retry_on:
            return False
        try:
            if self._retry_on is None:
                self._retry_on = pickle.loads(self._common.retry_on)
            return isinstance(error, self._retry_on)
        except BaseException as reason:  # These classes, and what they inherit from, are the user's code.
            why = f"{type(reason).__name__}: {text_of(str, reason)}"[:ERROR_CHARS_MAX]
            BaseException.add_note(error, f"it was not retried, as the worker could not look at retry_on: {why}")
            return False

    def __call__(self, payload: x.Data, inputs: Sequence[x.Data] = ()) -> Any:
        function = self.load() if self._function is None else self._function
        if type(payload) is bytes and not inputs:
            arguments = pickle.loads(payload)  # The same as `decode_call`, without the cost of calling it.
        else:
            arguments = using(payload, lambda content: decode_call(content, inputs))
        if self._common.chunked:
            return [
                value if type(value := function(*args)) is not CoroutineType else _run_to_its_end(value)
                for args in arguments
            ]
        args, kwargs = arguments
        value = function(*args, **kwargs)
        return value if type(value) is not CoroutineType else _run_to_its_end(value)


def _run_to_its_end(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    """What the coroutine of an `async def` function returns.

    Its event loop ends with it, so that nothing that the task leaves running there takes the next task's time.
    """
    import asyncio  # Most workers never need this import, and each would pay for it.

    return asyncio.run(coroutine)


_shipped = ShippedModules()
"""What tasks of this process can import besides what it has."""


class PythonExecutor:
    """Runs what the node monitor at the other end of the connection sends."""

    def __init__(
        self,
        connection: ExecutorConnection,
        limits: TaskLimits = NO_LIMITS,
        streams: TaskStreams | None = None,
        channel: OutputChannel | None = None,
    ) -> None:
        """`channel`: takes the tasks' output, from the first job on."""
        self._connection = connection
        self._cpu_s = limits.cpu_s
        self._streams = TaskStreams() if streams is None else streams
        self._channel = channel
        self._output: WorkerOutput | None = None
        self._functions: dict[int, Function] = {0: Function(b"")}
        """Functions by the number of their common bytes; number 0 is for jobs without common bytes."""
        self._commons: dict[int, x.Data] = {}
        """Common bytes of which no run has come yet, and so it is not known whose they are."""
        self._kept: KeptFunctions[Function] = KeptFunctions()
        self._runs: deque[x.Run] = deque()
        self._ended: list[x.ExecutorMessage] = []
        self.yields = Yields(connection, self._handle)
        """Whom tasks ask whether they are to yield."""
        self.nested = NestedTask(connection, self.yields, self._ended)
        """How tasks submit tasks of their own, and wait for them."""

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
                    self._ended.append(self._run_call(runs.popleft()))
        except (EOFError, ConnectionError):
            return

    def _handle(self, message: Any) -> None:
        kind = type(message)
        if kind is x.Run:
            self._runs.append(message)
        elif kind is x.Common:
            if self._channel is not None:
                self._attach(self._channel)
            self._commons[message.common] = message.data
        elif kind is x.ForgetCommon:
            self._functions.pop(message.common, None)
            self._commons.pop(message.common, None)
        elif kind is x.Revoke:
            revoked = [run for run in self._runs if run.run in message.runs]
            for run in revoked:
                self._runs.remove(run)
            self._ended.append(x.Returned([run.run for run in revoked]))
        elif kind is x.Yield:
            self.yields.ask(message)
        elif kind is x.MayWait or kind is x.HasSlot:
            self.nested.heard(message)

    def _attach(self, channel: OutputChannel) -> None:
        """Attach the worker's output to the channel.

        Workers do so at their first job: it costs the program file descriptors, and many workers never get a job.
        """
        self._output = channel.attach()
        self._channel = None
        channel.close()

    def _run_call(self, run: x.Run) -> x.Done:
        if self._cpu_s:
            allow_cpu(self._cpu_s)
        function = self._functions.get(run.common) or self._function_of(run)
        self.yields.begin(run.run)
        self.nested.begin(run.run, run.key)
        meter = UsageMeter() if run.measure else None
        done = self._run_captured(run, function) if function.capture_output else self._run_uncaptured(run, function)
        self.nested.end()
        self.yields.end()
        if meter is not None:
            done.used = meter.used()
        wrote = self._streams.flush()
        if self._output is not None:
            self._output.end(wrote, done.service_s)
        return done

    def _function_of(self, run: x.Run) -> Function:
        """The function of the first run of a job: one that is kept, or else it is unpickled when called."""
        data, user = self._commons.pop(run.common), run.user
        if type(data) is not bytes:
            function = Function(data)
        elif (kept := self._kept.get(user, data)) is not None:
            function = kept
        else:
            function = Function(data, partial(self._kept.keep, user, data))
        self._functions[run.common] = function
        return function

    def _run_uncaptured(self, run: x.Run, function: Function) -> x.Done:
        started_at_s, started_s = time.time(), time.perf_counter()
        status, result, error, retry = _call(function, run, self._output)
        if len(result) <= INLINE_BYTES_MAX:
            done = x.Done(run.run, status, result, error, started_at_s, time.perf_counter() - started_s)
        else:
            outcome = self._stored(status, result, error)
            done = x.Done(run.run, *outcome, started_at_s, time.perf_counter() - started_s)
        if retry:
            done.retry = True
        return done

    def _run_captured(self, run: x.Run, function: Function) -> x.Done:
        started_at_s, started_s = time.time(), time.perf_counter()
        with self._streams.captured() as captured:
            status, result, error, retry = _call(function, run, self._output)
        outcome: Outcome = (status, result, error)
        if len(result) > INLINE_BYTES_MAX:
            outcome = self._stored(status, result, error)
        service_s = time.perf_counter() - started_s
        done = x.Done(run.run, *outcome, started_at_s, service_s, *captured.texts(OUTPUT_CHARS_MAX))
        done.retry = retry
        return done

    def _stored(self, status: TaskStatus, result: bytes, error: str) -> Outcome:
        """The outcome with its result in a file; a failure if the file cannot be written."""
        try:
            return status, self._connection.data(result), error
        except OSError as reason:
            if status is TaskStatus.FAILED:
                return status, b"", error
            text = f"the result of {len(result)} bytes {x.NOT_KEPT}{reason.strerror or reason}"
            return _failed(OSError(reason.errno, text))


def _call(function: Function, run: x.Run, output: WorkerOutput | None) -> tuple[TaskStatus, bytes, str, bool]:
    """Status, result (however large) and error of one call, and whether it is to run again."""
    try:
        if function.modules is not _shipped.used:
            _shipped.use(function.modules)
        if output is not None:
            if not function.name:
                output.begin(NAMELESS, run.task)  # Unpickling may run the user's code, which may print.
                function.load()
            output.begin(function.name, run.task)
        value = (
            function(run.payload, run.inputs) if function.trace is None else _in_trace(function, function.trace, run)
        )
    except BaseException as error:  # sys.exit() in a task ends the task, not the worker.
        retry = function.retries(error)  # It may add a note to the exception.
        return *_failed(error), retry
    try:
        result = encode_value(value)
    except MemoryError as error:
        BaseException.add_note(error, f"raised while the result, of type {type(value).__qualname__}, was pickled")
        retry = function.retries(error)
        return *_failed(error), retry
    except Exception as error:
        described, why = f"{text_of(shown, value)} of type {type(value).__qualname__}", text_of(str, error)
        return *_failed(TypeError(f"the result {described} cannot be pickled: {why}")), False
    except BaseException as error:  # Pickling runs the user's code, too, which may end the task, not the worker.
        return *_failed(error), False
    if len(result) > RESULT_BYTES_MAX:
        too_large = ValueError(f"the result is {len(result)} bytes; at most {RESULT_BYTES_MAX} can be returned")
        return *_failed(too_large), False
    return TaskStatus.FINISHED, result, "", False


def _in_trace(function: Function, trace: TraceContext, run: x.Run) -> Any:
    """What the call returns."""
    return in_trace(trace, run.task, lambda: function(run.payload, run.inputs))


def _decode_common(content: Any) -> TracedCommon:
    return msgspec.msgpack.decode(content, type=TracedCommon)


def _sendable(text: str, chars_max: int) -> str:
    """The text's beginning without lone surrogates, which messages cannot hold."""
    return text[:chars_max].encode("utf-8", "backslashreplace").decode()


def _is_ours(frame: FrameType) -> bool:
    """Whether the frame is one of those between the executor and the task's own code."""
    path = frame.f_code.co_filename
    return path == __file__ or path.startswith(ASYNCIO_DIRECTORY)


def _traceback_of(error: BaseException) -> str:
    """The text of the exception's traceback, or why it cannot be formatted: that runs code of the exception's class."""
    try:
        frames = error.__traceback__
        while frames is not None and _is_ours(frames.tb_frame):
            frames = frames.tb_next
        return "".join(traceback.format_exception(type(error), error, frames))
    except BaseException as reason:
        why = f"{type(reason).__name__}: {text_of(str, reason)}"[:ERROR_CHARS_MAX]
        return f"(the traceback of the {type(error).__name__} could not be formatted: {why})\n"


def _failed(error: BaseException) -> tuple[TaskStatus, bytes, str]:
    """The exception and its traceback, pickled; a substitute if the exception's class fails when it is looked at."""
    try:
        return _pickled_failure(error)
    except BaseException as reason:  # The exception's class is the user's code, which may end the task, not the worker.
        text = f"{object.__repr__(error)} cannot be described: {object.__repr__(reason)}"[:ERROR_CHARS_MAX]
        return TaskStatus.FAILED, encode_exception(RuntimeError(text), text), _sendable(text, ERROR_CHARS_MAX)


def _pickled_failure(error: BaseException) -> tuple[TaskStatus, bytes, str]:
    """The exception and its traceback, pickled; the traceback starts in the task's own code."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        BaseException.add_note(
            error,
            f"the worker (Python {RUNTIME}, {sys.executable}) has no module {error.name!r}: install it there, "
            f"or ship it (CallOptions.modules)",
        )
    text = _traceback_of(error)
    summary = _sendable(f"{type(error).__name__}: {text_of(str, error)}", ERROR_CHARS_MAX)
    BaseException.__setattr__(error, "__traceback__", None)  # The class may define `__setattr__` as it likes.
    return TaskStatus.FAILED, encode_exception(error, text), summary


def main() -> None:
    """Connect to the node monitor that started this process, and serve it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.argv = [""]  # Some tasks parse the arguments, and must not find this worker's.
    try:
        connection = ExecutorConnection.from_environment(APP, runtime=RUNTIME)
    except OSError as error:  # The node monitor died meanwhile.
        sys.exit(f"sparrow python executor: {error}")
    streams = TaskStreams.of_worker()
    line_buffer_c_output()
    executor = PythonExecutor(connection, TaskLimits.from_environment(), streams, OutputChannel.from_environment())
    enter_process(executor.yields, executor.nested)
    gc.freeze()
    executor.serve()


if __name__ == "__main__":
    main()
