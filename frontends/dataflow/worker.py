"""Workers of programs over arrays, the executor of app `dataflow`: `python -m frontends.dataflow.worker`.

A task is a worker's life in one program. It links with the program's process and its controller, then with the other
workers, and does what `worker_core` says: it calls the program, runs tasks, and looks at its links between them. A
second thread tells the controller that the process lives, and hears the node monitor, which may want the slot back.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import queue
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from frontends.dataflow.advice import advised, refuse_breakpoint
from frontends.dataflow.blocks import STOP
from frontends.dataflow.calls import SIGNALS_MAX, Block, Calls
from frontends.dataflow.commanded_core import CommandedCore
from frontends.dataflow.control_messages import (
    CONTROLLER,
    DRIVER,
    LOCAL,
    OF_A_TASK,
    Beat,
    ControllerHere,
    Dismiss,
    Hello,
    Leaving,
    Order,
    Peer,
    PeerLost,
    Printed,
    Recorded,
    RunFailed,
    Where,
)
from frontends.dataflow.encoding import UNREADABLE, flat_bytes
from frontends.dataflow.errors import LinkRefused, RunLost, peer_name
from frontends.dataflow.links_of import Peers, address_of, host_towards, where_is
from frontends.dataflow.local_core import LocalCore
from frontends.dataflow.memory import Memory
from frontends.dataflow.recording import Recorder
from frontends.dataflow.reports import TOLD_EVERY_S, Reports
from frontends.dataflow.shipping import ProgramHere, unpack_definition, unpack_program
from frontends.dataflow.wall_clock import by_wall_clock
from frontends.dataflow.worker_core import WorkerCore
from sparrow_py.calls import RUNTIME
from sparrow_py.exception_pickling import encode_exception, text_of
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_connection import ExecutorConnection
from sparrow_py.executors.executor_files import load
from sparrow_py.job import TaskStatus
from sparrow_py.own_packages import take_names
from sparrow_py.processes.process_bound import tell_of_forks
from sparrow_py.task_context import enter_process

APP = "dataflow"
LOOK_EVERY_NS = 200_000
"""A worker looks at its links at the end of the first task after so long."""
BEAT_EVERY_S = 1.0
REPORT_EVERY_S = 0.5
REDIAL_S = 10.0
"""A worker whose controller is gone waits so long for another one."""
WAIT_S = REPORT_EVERY_S
"""Longest wait for messages at a time. Messages end it, so a worker that has nothing to do wakes only to report."""
ERROR_CHARS_MAX = 2000
ERROR_BYTES_MAX = 8 << 20
"""Of an exception that is sent, pickled; of a larger one its text is sent."""
FAILURES_MAX = 100
"""Of one worker in one epoch. The first ends the epoch, so more mean that the worker does not hear of that."""
SPANS_PER_MESSAGE_MAX = 5_000
PRINTED_CHARS_MAX = 65_536
"""Of one message; longer text travels in several."""
Array = np.ndarray[Any, Any]


class _Abandoned(BaseException):
    """The program's call is over, as the epoch is."""


class _Prints(io.TextIOBase):
    """A standard stream whose lines go to the program's process."""

    def __init__(self, worker: Worker, *, is_error: bool) -> None:
        self._worker, self._is_error = worker, is_error
        self._line = ""
        self._run = self._pieces = 0
        self._is_of_task = True
        """Whether text is a task's. The program's own has a run, and its pieces are counted."""
        self.is_mute = False
        """Whether what is printed is dropped."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not self.is_mute:
            self._line += text
            if "\n" in text or len(self._line) > PRINTED_CHARS_MAX:
                self.flush()
        return len(text)

    @contextlib.contextmanager
    def of_program(self, run: int) -> Iterator[None]:
        """What is printed meanwhile is the program's own text, but for what is printed in `_OfTasks`."""
        self.flush()
        self._run, self._pieces, self._is_of_task = run, 0, False
        try:
            yield
        finally:
            self.flush()
            self._is_of_task, self.is_mute = True, False

    def turn(self, *, is_of_task: bool) -> None:
        """From now on tasks print, or the program does."""
        if self._line:
            self.flush()
        self._is_of_task = is_of_task

    def flush(self) -> None:
        text, self._line = self._line, ""
        for begin in range(0, len(text), PRINTED_CHARS_MAX):
            number = OF_A_TASK if self._is_of_task else self._pieces
            self._pieces += not self._is_of_task
            self._worker.printed(text[begin : begin + PRINTED_CHARS_MAX], self._run, number, is_error=self._is_error)


class _OfTasks:
    """What is printed meanwhile is that of a block's tasks, not of the program that called it.

    Entered once a block, so a class, and one object for all blocks: context managers of `contextlib` took 5 µs of the
    28 µs that a signal took.
    """

    __slots__ = ("_streams",)

    def __init__(self, *streams: _Prints) -> None:
        self._streams = streams

    def __enter__(self) -> None:
        for stream in self._streams:
            stream.turn(is_of_task=True)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for stream in self._streams:
            stream.turn(is_of_task=False)
            if kind is _Abandoned:  # The program has handlers, perhaps, but nothing to say: it has not come so far.
                stream.is_mute = True


class Worker:
    """One worker of one program."""

    def __init__(self, order: Order, directory: str) -> None:
        """`LinkRefused` if the program's process or the controller cannot be reached."""
        self.order = order
        self.dismissed: str | None = None
        """Why it ends; None while it goes on."""
        self._memory = Memory()
        self._peers = Peers(order.worker, order.key, self._memory, order.transport, order.allow_plaintext)
        self._links = self._peers.links
        self._reports = Reports(lambda message: self._peers.send(CONTROLLER, message), time.monotonic)
        self._known: dict[int, Where] = {}
        self._linked: set[int] = set()
        self._orphan_until_s: float | None = None
        self._next_controller: Where | None = None
        """Where the next one is, while the end of the link with the one before is yet to be seen."""
        self._called_epoch = -1
        self._report_s = 0.0
        self._leaving: Leaving | None = None
        """What controllers are told once the node monitor wants the slot back."""
        self._error: tuple[int, BaseException] | None = None
        """What a message led to, and in which epoch."""
        self._failures = (-1, 0)
        """The epoch of the last exception, and how many there were in it."""
        self._is_fork = False
        self._recorder = self._recording() if order.spans_per_s else None
        self._core = WorkerCore(
            order.worker, self, unpack_definition, clock=time.perf_counter_ns, poll=self._look_between_tasks,
            settle=self._settled, recorder=self._recorder, is_commanded=order.plane != LOCAL,
        )  # fmt: skip
        with contextlib.ExitStack() as undo:
            undo.callback(self._links.close, 0)
            self._where = where_is(self._links.listen(directory, host_towards(order.driver)))
            self._links.dial(DRIVER, address_of(order.driver))
            self._dial_controller(order.controller)
            undo.pop_all()
        tell_of_forks(self)

    def forked(self) -> None:
        """This is the copy of a process that a stage has forked: it is no worker. What the stage does there is its own
        business; when the stage is over, the process ends."""
        self._is_fork = True
        self._links.forked()
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        if self._core.core is not None:
            self._core.core.run_no_more()

    def _recording(self) -> Recorder:
        """What tells the program's process which task ran when."""
        where = f"{os.uname().nodename} {os.getpid()}"

        def deliver(spans: Array) -> None:
            for begin in range(0, len(spans), SPANS_PER_MESSAGE_MAX):
                part = spans[begin : begin + SPANS_PER_MESSAGE_MAX]
                self.send(DRIVER, Recorded(self.order.worker, where, part.tobytes()))

        return Recorder(self.order.spans_per_s, by_wall_clock(deliver))

    # ---- for the other thread ---------------------------------------------------------------------

    def beat(self) -> None:
        with contextlib.suppress(KeyError):
            self._links.send(CONTROLLER, Beat(self.order.worker))

    def leave(self, within_s: float) -> None:
        """The node monitor wants the slot back. It says so once; each controller has to hear it."""
        self._leaving = Leaving(self.order.worker, within_s)
        self._links.in_haste = True  # What it holds has to be elsewhere by then.
        with contextlib.suppress(KeyError):
            self._links.send(CONTROLLER, self._leaving)

    # ---- links ------------------------------------------------------------------------------------

    def send(self, peer: int, message: Any) -> None:
        if peer == CONTROLLER:
            self._reports.send(message)
        else:
            self._peers.send(peer, message)

    def flush(self) -> None:
        self._links.flush()

    def _dial_controller(self, where: Where) -> None:
        try:
            self._links.dial(CONTROLLER, address_of(where))
        except LinkRefused:
            if self._orphan_until_s is None:
                raise
            return  # It may have died again; the program's process will tell of the next.
        self._orphan_until_s = None
        self.send(CONTROLLER, Hello(self.order.worker, self._where, f"{os.uname().nodename} {os.getpid()}"))
        if self._leaving is not None:
            self.send(CONTROLLER, self._leaving)
        self.flush()

    def _link(self, peer: int) -> None:
        """Have a link with another worker. Of two, the one that came later dials."""
        if peer > self.order.worker or peer in self._links.peers() or peer not in self._known:
            return
        try:
            self._links.dial(peer, address_of(self._known[peer]))
        except LinkRefused as refused:
            self.send(CONTROLLER, PeerLost(self._core.epoch, peer, str(refused)))

    def _look(self) -> None:
        """Take what has come."""
        for peer, message in self._links.receive():
            try:
                self._take(peer, message)
            except BaseException as error:  # What came with the message is taken: another epoch may begin with that.
                self._error = self._core.epoch, error
        for peer, why in self._links.lost():
            self._see_lost(peer, why)
        self._peers.send_waiting()

    def _take(self, peer: int, message: Any) -> None:
        match message:
            case Dismiss():
                self.dismissed = message.why
            case ControllerHere():
                if CONTROLLER in self._links.peers():
                    self._next_controller = message.where
                else:
                    self._dial_controller(message.where)
            case Peer():
                self._known[message.worker] = message.where
                self._link(message.worker)
            case _:
                self._core.receive(peer, message)

    def _see_lost(self, peer: int, why: str) -> None:
        if why.startswith(UNREADABLE):  # It would be so again after each roll-back.
            self._failed(
                RunLost(
                    f"{peer_name(self.order.worker)} cannot read what {peer_name(peer)} sent: {why}; modules of the "
                    f"classes of objects have to be importable at workers ({sys.executable})"
                )
            )
        if peer == DRIVER:
            self.dismissed = "the program's process is gone"
        elif peer == CONTROLLER:
            self._orphan_until_s = time.monotonic() + REDIAL_S
            where, self._next_controller = self._next_controller, None
            if where is not None:
                self._dial_controller(where)
        else:
            self.send(CONTROLLER, PeerLost(self._core.epoch, peer, why))

    def _settled(self, value: Any) -> Any:
        """Arrays where partitions are kept: in memory that can be handed over."""
        if type(value) is not np.ndarray or value.dtype.hasobject or not value.flags.c_contiguous:
            return value
        return value if self._memory.own_file(flat_bytes(value)) is not None else self._memory.copy_of(value)

    # ---- the loop ---------------------------------------------------------------------------------

    def live(self) -> None:
        """Until it is dismissed."""
        while self.dismissed is None:
            core = self._core
            if core.wants_load:
                self._load()
            elif isinstance(core.core, LocalCore) and core.epoch != self._called_epoch:
                self._called_epoch = core.epoch
                self._call_program(core.core)
            else:
                self._attend()

    def _attend(self) -> None:
        """Do what peers want."""
        try:
            self._wait()
            self._raise_error()
            core = self._core.core
            if isinstance(core, CommandedCore):
                with self._prints():
                    self._obey(core)
            elif core is not None:
                core.step()
        except _Abandoned:
            return
        except BaseException as error:
            self._failed(error)

    def _obey(self, core: CommandedCore) -> None:
        """Run what the controller has ordered."""
        core.step()
        self._see_abandoned(core)
        while core.has_work:  # It stopped for a look at the links.
            core.step()
            self._see_abandoned(core)

    def close(self) -> None:
        self._links.close()

    def _load(self) -> None:
        for peer in self._core.entered.members if self._core.entered is not None else ():
            self._link(peer)
        try:
            with self._prints():
                self._core.load()
        except BaseException as error:
            self._failed(error)

    def _call_program(self, core: LocalCore) -> None:
        """Call the program in this epoch."""
        entered = self._core.entered
        assert entered is not None
        here = ProgramHere(core.definition)
        try:
            with self._prints() as (out, err):
                of_tasks = _OfTasks(out, err)

                def run_block(block: Block) -> bool:
                    with of_tasks:
                        return self._run_block(core, block)

                calls = Calls(run_block, until=entered.until, signals=entered.signals, signals_max=SIGNALS_MAX)
                program = unpack_program(entered.shipped.program, here)
                try:
                    with out.of_program(entered.shipped.run), err.of_program(entered.shipped.run):
                        returned = here.calling(program, calls)
                finally:
                    if self._recorder is not None:
                        self._recorder.flush()
            self._core.run_over(calls.blocks, calls.hash, *here.pack_returned(returned))
            self.flush()
        except _Abandoned:
            return
        except BaseException as error:
            self._failed(error)

    def _run_block(self, core: LocalCore, block: Block) -> bool:
        self._see_abandoned(core)
        core.begin(block)
        while True:
            core.step()
            self._see_abandoned(core)
            if core.is_done():
                said = core.finish()
                self._report()
                return said
            if not core.has_work:
                self._wait()
                self._see_abandoned(core)

    def _see_abandoned(self, core: LocalCore | CommandedCore) -> None:
        if self._is_fork:
            os._exit(0)
        if self._core.core is not core or self.dismissed is not None:
            raise _Abandoned
        self._raise_error()

    def _raise_error(self) -> None:
        """Of an epoch that is over nothing is to be said."""
        if self._error is not None:
            (epoch, error), self._error = self._error, None
            if epoch == self._core.epoch:
                raise error

    def _wait(self) -> None:
        """Until something comes."""
        self._links.wait(TOLD_EVERY_S if self._reports.waiting else WAIT_S)
        self._look()
        self._report()
        if self._orphan_until_s is not None and time.monotonic() > self._orphan_until_s:
            self.dismissed = f"no controller has come within {REDIAL_S:g} s"

    def _look_between_tasks(self, now: int) -> int:
        """When to look next; `STOP` if the tasks are not to go on."""
        running = self._core.core
        if self._is_fork:
            return STOP
        self._look()
        self._report()
        if self._error is not None or self._core.core is not running or self.dismissed is not None:
            return STOP
        return now + LOOK_EVERY_NS

    def _report(self) -> None:
        now_s = time.monotonic()
        self._reports.see(now_s)
        if now_s >= self._report_s + REPORT_EVERY_S:
            self._report_s = now_s
            self._core.report_used()

    def _failed(self, error: BaseException) -> None:
        """Tell the controller of an exception."""
        text = "".join(traceback.format_exception(advised(error)))
        if self._is_fork:
            if not isinstance(error, SystemExit):
                os.write(2, text[-PRINTED_CHARS_MAX:].encode(errors="replace"))
            os._exit(0 if isinstance(error, SystemExit) and not error.code else 1)
        epoch, count = self._failures
        count = count + 1 if epoch == self._core.epoch else 1
        self._failures = (self._core.epoch, count)
        if count > FAILURES_MAX:
            self.dismissed = f"it failed {count} times and heard no answer; the last time {text[-ERROR_CHARS_MAX:]}"
        BaseException.__setattr__(error, "__traceback__", None)
        self.send(CONTROLLER, RunFailed(self._core.epoch, _encoded(error, text)))
        self.flush()

    # ---- what is printed --------------------------------------------------------------------------

    def printed(self, text: str, run: int, number: int, *, is_error: bool) -> None:
        self._links.send(DRIVER, Printed(self.order.worker, is_error, text, run, number))

    @contextlib.contextmanager
    def _prints(self) -> Iterator[tuple[_Prints, _Prints]]:
        """What is printed meanwhile goes to the program's process."""
        ours = sys.stdout, sys.stderr
        out, err = sys.stdout, sys.stderr = _Prints(self, is_error=False), _Prints(self, is_error=True)
        try:
            yield out, err
        finally:
            out.flush()  # A stage may have put others in their place.
            err.flush()
            sys.stdout, sys.stderr = ours


def _encoded(error: BaseException, text: str) -> bytes:
    """The exception, pickled, with the text of its traceback; of one that is too large what can be told of it."""
    encoded = encode_exception(error, text)
    if len(encoded) <= ERROR_BYTES_MAX:
        return encoded
    told = RuntimeError(
        f"{type(error).__name__}: {text_of(str, error)[:ERROR_CHARS_MAX]} (the exception itself is {len(encoded):,} "
        f"bytes, pickled; at most {ERROR_BYTES_MAX:,} are sent)"
    )
    for note in getattr(error, "__notes__", [])[-1:]:  # Ours, which names stage and partition.
        told.add_note(text_of(str, note)[:ERROR_CHARS_MAX])
    return encode_exception(told, text[-PRINTED_CHARS_MAX:])


# ---- the executor --------------------------------------------------------------------------------------


class _Listener:
    """Hears the node monitor, in a thread of its own, and tells the controller that the worker lives."""

    def __init__(self, connection: ExecutorConnection) -> None:
        self._connection = connection
        self.runs: queue.SimpleQueue[x.Run] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._run = -1
        self._worker: Worker | None = None
        self._within_s: float | None = None
        """Of a run that is to end, and has no worker yet."""
        threading.Thread(target=self._listen, name="node monitor", daemon=True).start()

    def begin(self, run: int) -> None:
        with self._lock:
            self._run, self._within_s = run, None

    def attend(self, worker: Worker | None) -> None:
        """From now on it is this worker that may be asked to leave; None: none."""
        with self._lock:
            self._worker = worker
            if worker is not None and self._within_s is not None:
                worker.leave(self._within_s)

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        try:
            while True:
                if poll.poll(BEAT_EVERY_S * 1000):
                    for message in self._connection.receive(wait=False):
                        self._handle(message)
                with self._lock:
                    if self._worker is not None:
                        self._worker.beat()
        except (EOFError, OSError):
            os._exit(0)  # The node monitor is gone, and this process with it.

    def _handle(self, message: Any) -> None:
        match message:
            case x.Run():
                self.runs.put(message)
            case x.Revoke():
                self._connection.send([x.Returned([])])  # There is one place: what is here has started.
            case x.Yield():
                with self._lock:
                    if message.run != self._run:
                        return
                    self._within_s = message.within_s
                    if self._worker is not None:
                        self._worker.leave(message.within_s)


def _run(listener: _Listener, run: x.Run, directory: str) -> tuple[TaskStatus, str]:
    """Be the worker of this run; status and error."""
    listener.begin(run.run)
    try:
        order = msgspec.msgpack.decode(load(run.payload), type=Order)
    except msgspec.MsgspecError as error:
        return TaskStatus.FAILED, f"the payload is no order for a worker: {error}"
    try:
        worker = Worker(order, directory)
    except Exception as error:  # The payload is anybody's: hosts and keys that cannot be raise anything.
        return TaskStatus.FAILED, text_of(str, error)[:ERROR_CHARS_MAX]
    listener.attend(worker)
    try:
        worker.live()
    except BaseException as error:
        return TaskStatus.FAILED, f"{type(error).__name__}: {text_of(str, error)}"[:ERROR_CHARS_MAX]
    finally:
        listener.attend(None)
        worker.close()
    return TaskStatus.FINISHED, ""


OURS = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "frontends"}
"""This package, as it was imported: a fork server gives such names back to tasks, and programs here mean ours by it."""


def main() -> None:
    """Serve the node monitor that started this process."""
    sys.modules.update(OURS)
    take_names()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.argv = [""]
    sys.breakpointhook = refuse_breakpoint
    try:
        connection = ExecutorConnection.from_environment(APP, runtime=RUNTIME)
    except OSError as error:
        sys.exit(f"sparrow dataflow worker: {error}")
    enter_process()
    gc.freeze()
    listener = _Listener(connection)
    directory = str(Path(connection.files_directory))
    while True:
        run = listener.runs.get()
        started_at_s, started_s = time.time(), time.perf_counter()
        status, why = _run(listener, run, directory)
        gc.collect()  # Arrays of the program that is over.
        connection.send([x.Done(run.run, status, b"", why, started_at_s, time.perf_counter() - started_s)])


if __name__ == "__main__":
    main()
