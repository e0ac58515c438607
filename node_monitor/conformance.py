"""Whether an executor keeps to docs/executor-protocol.md: `python -m node_monitor.conformance -- COMMAND…`.

For each check the command is started anew, as a node monitor would start it, and spoken to. A line
says for each what came of it; the exit code is 0 if all went well, and 1 if not.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import click

from node_monitor.attributes import check_attributes
from node_monitor.blobs.result_files import ResultDirectory
from node_monitor.executors.environment import one_thread_per_slot, passed_on
from node_monitor.executors.executors import executor_environment
from sparrow_py.daemon.version import version_option
from sparrow_py.errors import LinkError, shown
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus

TIMEOUT_S_DEFAULT = 10.0
END_TIMEOUT_S = 2.0
"""How long an executor may live when its socket has closed."""
CLOCK_SLACK_S = 1.0
"""By how much the start of a run may seem to be before it was given, or after it ended."""
POLL_S = 0.02
RECEIVE_BYTES = 1 << 16
RUNS_AT_ONCE = 16
COMMON_BYTES = 1 << 20
EXECUTOR_ID, NODE = "conformance-1", "conformance"
COMMON = 1
UNKNOWN = 999_999
"""A number that no run and no Common has."""


class Broken(Exception):
    """The executor did what it may not do, or did not do what it must. The text says what."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the caller said. `app` empty: any. `common`: bytes that the runs need, if not empty. `timeout_s`: for each
    thing that the executor is waited for."""

    command: tuple[str, ...]
    payload: bytes
    common: bytes
    app: str
    places: int
    timeout_s: float


class Executor:
    """The executor's process, and the node monitor's side of its connection. All methods may raise `Broken`."""

    def __init__(self, settings: Settings, folder: str) -> None:
        self._settings = settings
        self._folder = Path(folder)
        self._files = ResultDirectory(folder, EXECUTOR_ID)
        self._splitter = x.FrameSplitter()
        self._messages: deque[Any] = deque()
        self._given_at_s: dict[int, float] = {}
        """By run, of those that have not been answered."""
        self._runs = 0
        path = str(self._folder / "executors.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            self.process = self._start(path)
            try:
                self._connection = self._accept(listener)
            except BaseException:
                self.kill()
                raise
        self._connection.settimeout(settings.timeout_s)

    def _start(self, path: str) -> Popen[bytes]:
        own = executor_environment(path, EXECUTOR_ID, self._settings.places, self._files.path, NODE)
        try:
            return Popen(
                self._settings.command,
                env={**one_thread_per_slot(passed_on(os.environ, None)), **own},
                stdin=subprocess.DEVNULL,
                stdout=2,  # As at a node monitor, what it prints is for the log.
                start_new_session=True,
            )
        except OSError as error:
            raise Broken(f"the command cannot be started: {error}") from None

    def _accept(self, listener: socket.socket) -> socket.socket:
        listener.settimeout(POLL_S)
        deadline_s = time.monotonic() + self._settings.timeout_s
        while time.monotonic() < deadline_s:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if self.process.poll() is not None:
                raise Broken(f"it ended with exit code {self.process.returncode} before it had connected")
        raise Broken(f"it did not connect to {x.SOCKET_VARIABLE} within {self._settings.timeout_s:g} s")

    def kill(self) -> None:
        """End it, whatever state it is in."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Close the connection, and take no more files."""
        self._connection.close()
        self._files.close()

    # ---- messages ----------------------------------------------------------------------------

    def send(self, *messages: x.ExecutorMessage) -> None:
        """Send these as one frame, in the executor's encoding."""
        try:
            self._connection.sendall(x.encode_frame(list(messages), self._splitter.encoding))
        except TimeoutError:
            raise Broken("it did not read from its socket") from None
        except OSError as error:
            raise Broken(f"it closed its connection ({error})") from None

    def new_run(self, payload: x.Data | None = None, inputs: tuple[x.Data, ...] = ()) -> x.Run:
        """A run to be sent, by default of the payload that the caller gave."""
        self._runs += 1
        self._given_at_s[self._runs] = time.time()
        common = COMMON if self._settings.common else 0
        return x.Run(self._runs, common, self._settings.payload if payload is None else payload, list(inputs))

    def receive(self, what: str) -> Any:
        """The next message; `what` is waited for. A `Done` is checked, and is of a run not answered before.

        `Attributes` may come at any time: they are checked, too, and passed over.
        """
        message = self._next(what)
        while isinstance(message, x.Attributes):
            try:
                check_attributes("here", message.attributes)
            except LinkError as error:
                raise Broken(str(error)) from None
            message = self._next(what)
        if isinstance(message, x.Done):
            self._check_done(message)
        return message

    def _next(self, what: str) -> Any:
        while not self._messages:
            try:
                data = self._connection.recv(RECEIVE_BYTES)
                self._messages.extend(self._splitter.feed(data))
            except TimeoutError:
                raise Broken(f"{what} did not come within {self._settings.timeout_s:g} s") from None
            except OSError as error:  # `LinkError` is one.
                raise Broken(str(error)) from None
            if not data:
                raise Broken(f"it closed its connection; {what} was expected")
        return self._messages.popleft()

    def finish(self, *runs: x.Run) -> list[x.Done]:
        """The answers to these runs, in the order in which they came: nothing else may come, and all must finish."""
        missing = {run.run for run in runs}
        answers = []
        while missing:
            done = self.receive(f"the Done of run {min(missing)}")
            if not isinstance(done, x.Done):
                raise Broken(f"{shown(done)} came in place of a Done")
            if done.status is not TaskStatus.FINISHED:
                raise Broken(
                    f"run {done.run} is {done.status}: {done.error}. Say which payload it can run: --payload TEXT "
                    f"or --payload-file FILE"
                )
            missing.discard(done.run)
            answers.append(done)
        return answers

    def _check_done(self, done: x.Done) -> None:
        given_at_s = self._given_at_s.pop(done.run, None)
        if given_at_s is None:
            again = 1 <= done.run <= self._runs
            raise Broken(f"run {done.run} was {'answered or returned already' if again else 'never given'}")
        if done.status not in (TaskStatus.FINISHED, TaskStatus.FAILED):
            raise Broken(f"status {done.status!r} of run {done.run}; allowed: finished, failed")
        if not (math.isfinite(done.service_s) and done.service_s >= 0):
            raise Broken(f"service_s {done.service_s} of run {done.run}; allowed: seconds, from 0")
        if not given_at_s - CLOCK_SLACK_S <= done.started_at_s <= time.time() + CLOCK_SLACK_S:
            raise Broken(
                f"started_at_s {done.started_at_s} of run {done.run}; allowed: when it started, since the epoch"
            )
        if isinstance(done.result, x.File):
            self._check_file(done.result)

    def _check_file(self, file: x.File) -> None:
        try:
            descriptor = self._files.open(file)
        except LinkError as error:
            raise Broken(str(error)) from None
        with os.fdopen(descriptor, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if file.hash not in ("", digest):
            raise Broken(f"the SHA-256 of {file.path} is {digest}, not {file.hash}")
        Path(file.path).unlink()

    def returned(self, revoke: x.Revoke) -> None:
        """Wait for the answer to this: what it names has not been answered and will not be. Runs may end meanwhile."""
        message = self.receive("the answer to a Revoke")
        while isinstance(message, x.Done):
            message = self.receive("the answer to a Revoke")
        if not isinstance(message, x.Returned):
            raise Broken(f"{shown(message)} came in place of a Returned")
        for run in message.runs:
            if run not in revoke.runs:
                raise Broken(f"run {run} was returned, and not revoked: {revoke.runs} were")
            if self._given_at_s.pop(run, None) is None:
                raise Broken(f"run {run} was returned, but it was answered or returned already, or never given")

    def file(self, content: bytes) -> x.File:
        """A file for it to read."""
        descriptor, path = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        return x.File(path, len(content), hashlib.sha256(content).hexdigest())

    def unanswered(self) -> list[x.Run]:
        """Runs that were given, and neither answered nor returned."""
        return [x.Run(run, 0, b"") for run in self._given_at_s]

    def hello(self) -> x.ExecutorHello:
        """Its first message; it is told the common bytes of all runs, if there are any."""
        hello = self.receive("the hello")
        if not isinstance(hello, x.ExecutorHello):
            raise Broken(f"the first message is not a hello but {shown(hello)}")
        if self._settings.common:
            self.send(x.Common(COMMON, self._settings.common))
        return hello


# ---- the checks ------------------------------------------------------------------------------
# Each is given an executor that has said hello; its docstring is its line.


def _hello(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """hello: it connects and says who it is"""
    try:
        x.check_version(hello.version)
    except LinkError as error:
        raise Broken(str(error)) from None
    if hello.id != EXECUTOR_ID:
        raise Broken(f"id {hello.id!r}; allowed: what {x.ID_VARIABLE} says, {EXECUTOR_ID!r}")
    if not hello.app or (settings.app and hello.app != settings.app):
        raise Broken(f"app {hello.app!r}; allowed: {repr(settings.app) if settings.app else 'a name'}")
    if not 1 <= hello.places <= x.PLACES_MAX:
        raise Broken(f"places {hello.places}; allowed: a whole number from 1 to {x.PLACES_MAX}")


def _run(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """run: each Run is answered by one Done"""
    for _ in range(3):
        run = executor.new_run()
        executor.send(run)
        executor.finish(run)


def _runs(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """runs: several Runs in a frame are all answered, in order if there is one place"""
    runs = [executor.new_run() for _ in range(RUNS_AT_ONCE)]
    executor.send(*runs)
    order = [done.run for done in executor.finish(*runs)]
    if hello.places == 1 and order != sorted(order):
        raise Broken(f"with one place, runs are to be answered in the order in which they came, not {order}")


def _revoke(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """revoke: each Revoke is answered by one Returned, and a run by either that or a Done"""
    runs = [executor.new_run() for _ in range(4)]
    first, second = x.Revoke([runs[1].run, runs[2].run, UNKNOWN]), x.Revoke([runs[3].run])
    executor.send(*runs, first, second)
    executor.returned(first)
    executor.returned(second)
    last = executor.new_run()
    executor.send(last)
    executor.finish(*executor.unanswered())


def _common(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """common: a Common or ForgetCommon that it has no use for does no harm"""
    executor.send(x.Common(7, bytes(COMMON_BYTES)), x.Common(8, executor.file(bytes(COMMON_BYTES))))
    run = executor.new_run()
    executor.send(x.ForgetCommon(7), x.ForgetCommon(UNKNOWN), run)
    executor.finish(run)


def _file(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """file: a payload may be in a file"""
    run = executor.new_run(executor.file(settings.payload))
    executor.send(run)
    executor.finish(run)


def _inputs(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """inputs: a Run may have inputs that the payload does not ask for"""
    run = executor.new_run(inputs=(b"input", executor.file(b"input")))
    executor.send(run)
    executor.finish(run)


def _kill(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """kill: a run that is killed is answered by one Done, and further ones run"""
    run, last = executor.new_run(), executor.new_run()
    executor.send(run, x.Kill([run.run, UNKNOWN]))
    done = executor.receive("the Done of a run that was killed")
    if not isinstance(done, x.Done) or done.run != run.run:
        raise Broken(f"{shown(done)} came in place of the Done of run {run.run}")
    executor.send(last)
    executor.finish(last)


def _yield(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """yield: a run that is asked to yield is answered by one Done, and further ones run"""
    run, last = executor.new_run(), executor.new_run()
    executor.send(run, x.Yield(run.run, settings.timeout_s), x.Yield(UNKNOWN, settings.timeout_s))
    done = executor.receive("the Done of a run that is to yield")
    if not isinstance(done, x.Done) or done.run != run.run:
        raise Broken(f"{shown(done)} came in place of the Done of run {run.run}")
    executor.send(x.Yield(run.run, settings.timeout_s), last)  # It has ended by now.
    executor.finish(last)


def _end(executor: Executor, hello: x.ExecutorHello, settings: Settings) -> None:
    """end: it ends when its socket closes"""
    executor.close()
    try:
        executor.process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Broken(f"it has not ended {END_TIMEOUT_S:g} s after its socket closed") from None


Check = Callable[[Executor, x.ExecutorHello, Settings], None]
CHECKS: tuple[Check, ...] = (_hello, _run, _runs, _revoke, _common, _file, _inputs, _kill, _yield, _end)


@contextlib.contextmanager
def _started(settings: Settings) -> Iterator[Executor]:
    with tempfile.TemporaryDirectory(prefix="sparrow-conformance-") as folder:
        executor = Executor(settings, folder)
        try:
            yield executor
        finally:
            executor.kill()
            executor.close()


def check(settings: Settings, say: Callable[[str], None]) -> bool:
    """Make all checks, and `say` a line for each; whether all went well."""
    well = True
    for one in CHECKS:
        line = (one.__doc__ or "").partition("\n")[0]
        try:
            with _started(settings) as executor:
                hello = executor.hello()
                if one is _kill and hello.places == 1:
                    say(f"skip  {line} (it has one place, and would be killed itself)")
                    continue
                if one is _yield and hello.version < x.YIELD_SINCE:
                    say(f"skip  {line} (it speaks version {hello.version}, and is given no task that has a lease)")
                    continue
                one(executor, hello, settings)
        except Broken as broken:
            say(f"FAIL  {line}\n      {broken}")
            well = False
            if one is _hello:
                return False
        else:
            say(f"ok    {line}")
    return well


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    params=[version_option("python -m node_monitor.conformance")],
)
@click.option("--payload", default="", help="What is run: text that the executor can run. Default: nothing.")
@click.option("--payload-file", type=click.Path(exists=True, dir_okay=False), help="The same, from a file.")
@click.option("--common-file", type=click.Path(exists=True, dir_okay=False), help="Common bytes that the runs need.")
@click.option("--app", default="", help="The app that the executor must say it runs; default: any.")
@click.option("--places", default=1, type=click.IntRange(1, x.PLACES_MAX), help=f"What {x.PLACES_VARIABLE} says.")
@click.option("--timeout-s", default=TIMEOUT_S_DEFAULT, type=click.FloatRange(0.1), help="For each answer.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def main(
    payload: str,
    payload_file: str | None,
    common_file: str | None,
    app: str,
    places: int,
    timeout_s: float,
    command: tuple[str, ...],
) -> None:
    """Check whether the executor that COMMAND starts keeps to the executor protocol."""
    if payload and payload_file:
        raise click.UsageError("--payload and --payload-file: give one of them")
    content = Path(payload_file).read_bytes() if payload_file else payload.encode()
    common = Path(common_file).read_bytes() if common_file else b""
    sys.exit(0 if check(Settings(command, content, common, app, places, timeout_s), click.echo) else 1)


if __name__ == "__main__":
    main()
