"""The program's own process among its workers: it submits them, starts the controller, and gets what runs return.

A thread takes what comes; `run` waits for it, or calls the program meanwhile, if workers are commanded. Workers fetch
from here what the program gave its datasets, and print here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any

import msgspec

from frontends.dataflow.caller import Caller
from frontends.dataflow.commands import Answer, Unknown
from frontends.dataflow.control_messages import (
    CONTROLLER,
    DRIVER,
    LOCAL,
    Ask,
    Begin,
    ControllerHere,
    Dismiss,
    GivenUp,
    Happened,
    Order,
    Orders,
    Outcome,
    Over,
    PlaceOf,
    Printed,
    Progress,
    Received,
    Recorded,
    Returned,
    Runs,
    Settings,
    Shipped,
    Trim,
    Unreachable,
    Values,
    Want,
    Where,
    Withdraw,
)
from frontends.dataflow.errors import RunLost
from frontends.dataflow.links_of import Peers, where_is
from frontends.dataflow.memory import Memory
from frontends.dataflow.printed_lines import PrintedLines
from frontends.dataflow.slots import APP, no_scheduler
from sparrow_py import Client
from sparrow_py.calls import RUNTIME
from sparrow_py.client import Job
from sparrow_py.exception_pickling import with_traceback
from sparrow_py.job import JobSpec, TaskSpec
from sparrow_py.processes.process_bound import tell_of_forks
from sparrow_py.start import command

KEY_BYTES = 32
LOOK_S = 1.0
"""Longest wait for messages at a time."""
START_LOOK_S = 0.2
"""The same while a controller starts, which may end before it has a link whose end would be seen."""
ENDING_S = 1.0
"""For which the end waits for workers that are cancelled, and then for the controller."""
CONTROLLERS_MAX = 10
"""Controllers in a row that end without a run that is over between them."""
EPOCHS_PER_CONTROLLER = 1 << 20
CONTROLLER_MODULE = "frontends.dataflow.controller"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a program is run."""

    plane: str
    workers: int
    min_workers: int
    start_timeout_s: float
    lease_s: float | None
    snapshot_every_s: float | None
    transport: str
    allow_plaintext: bool
    host: str
    """Where the program's process and the controller listen."""
    progress: Callable[[Progress], None]
    spans_per_s: int = 0
    """What each worker records of its tasks for a timeline; 0: nothing is recorded."""
    record: Callable[[Recorded | Happened], None] = lambda message: None
    """Takes what is recorded."""
    lines: PrintedLines = field(default_factory=PrintedLines)
    """What programs have printed."""


@dataclass(slots=True)
class _Awaited:
    """A run that the program waits for."""

    run: int
    over: Over | None = None
    values: dict[PlaceOf, Any] = field(default_factory=dict)
    done: set[tuple[int, int]] = field(default_factory=set)
    """Workers of which all has come, with the epoch."""
    error: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    caller: Caller | None = None
    """If the program is called here."""

    def end(self) -> None:
        self.ended.set()
        if self.caller is not None:
            self.caller.put(None)

    def see(self) -> bool:
        """Whether all is here."""
        over = self.over
        return over is not None and all((over.epoch, member) in self.done for member in over.members)


class Driver:
    """Of one program."""

    def __init__(
        self, client: Client, plan: Plan, given: Callable[[PlaceOf], Any], slots: int, snapshots: Path
    ) -> None:
        """`given` has the values that the program gave a place; `slots` are those of nodes that run workers; in
        `snapshots` may be some that an earlier driver left."""
        self._client, self._plan, self._given, self._slots = client, plan, given, slots
        self._key = secrets.token_bytes(KEY_BYTES)
        self._peers = Peers(DRIVER, self._key, Memory(), plan.transport, plan.allow_plaintext)
        self._directory = tempfile.mkdtemp(prefix="sparrow-dataflow-")
        self._snapshots = snapshots
        self._controller_where: Where | None = None
        self._controllers = 0
        self._fruitless = 0
        """Controllers in a row that have ended since a run was over."""
        self._given_up = ""
        """Why no other one is started."""
        self._jobs: dict[int, Job] = {}
        self._next_worker = 0
        self._known: list[int] = []
        """Workers that the controller waits for from its start on."""
        self._runs: dict[int, Shipped] = {}
        self._told: set[int] = set()
        """Runs that this controller knows."""
        self._is_cut_off = False
        """Whether no scheduler has been reached for so long that the controller is told."""
        self.needed_from = 0
        """Runs before this one would not be run again."""
        self._awaited: _Awaited | None = None
        self._lock = threading.Lock()
        self._closing = self._closed = False
        self._close_lock = threading.Lock()
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self._directory, ignore_errors=True)
            undo.callback(self._peers.links.close, 0)
            self._where = where_is(self._peers.links.listen(self._directory, plan.host))
            self._controller = self._start_controller()
            undo.callback(self._controller.wait)
            undo.callback(self._controller.kill)
            self._thread = threading.Thread(target=self._serve, name="dataflow", daemon=True)
            self._thread.start()
            undo.pop_all()
        atexit.register(self.close)
        tell_of_forks(self)

    def forked(self) -> None:
        """This is the copy in a forked child, where nothing may be ended or removed that is the parent's."""
        self._closing = self._closed = True
        self._lock = threading.Lock()  # Another thread of the parent may have held it.
        self._given_up = "the Dataflow works in the process that made it alone, and this one was forked from that"
        atexit.unregister(self.close)
        self._peers.links.forked()

    # ---- runs, in the program's thread ------------------------------------------------------------

    def run(self, runs: Sequence[Shipped]) -> tuple[bytes, dict[PlaceOf, Any]]:
        """What the last run returned, pickled, and the values of its datasets. Others may have to be run again."""
        wanted = runs[-1].run
        awaited = _Awaited(wanted)
        if self._plan.plane != LOCAL:
            awaited.caller = Caller(
                self._runs.__getitem__, self._tell, self._plan.lines, is_templated=self._plan.plane == "templates"
            )
        if self._given_up:
            raise RunLost(self._given_up)
        with self._lock:
            self._runs.update((run.run, run) for run in runs)
            self._plan.lines.keep(self._runs)
            self._awaited = awaited
            if self._controller_where is not None:
                self._see_schedulers()  # They may be back since that was looked at.
                self._tell_runs()
        try:
            if awaited.caller is not None:
                awaited.caller.call()
            awaited.ended.wait()
        finally:
            self._awaited = None
        if awaited.error is not None:
            raise awaited.error
        assert awaited.over is not None
        return awaited.over.returned, awaited.values

    def _tell(self, message: Any) -> None:
        """To the controller; what its death swallows the next one asks for, or is told when it is here."""
        with contextlib.suppress(KeyError):
            self._peers.links.send(CONTROLLER, message)

    def _tell_runs(self) -> None:
        """Tell this controller of the runs that it does not know, and whether the last is wanted."""
        runs = [run for number, run in sorted(self._runs.items()) if number not in self._told]
        awaited = self._awaited
        is_awaited = awaited is not None and not awaited.ended.is_set()
        for run in runs:  # One by one, as a message with all of them may be too large.
            self._peers.links.send(CONTROLLER, Runs([run], wanted=is_awaited and run is runs[-1]))
            self._told.add(run.run)

    def close(self) -> None:
        """End all workers and the controller; snapshots stay. A call that Ctrl-C interrupts may be repeated."""
        if self._closed:  # In a forked child the lock may be held for ever.
            return
        with self._close_lock:
            if not self._closed:
                self._close()

    def _close(self) -> None:
        self._closing = True
        self._end_run(RunLost("the Dataflow was closed"))
        futures = [future for job in list(self._jobs.values()) for future in job.futures]
        for job in list(self._jobs.values()):
            job.cancel(running=True)
        with contextlib.suppress(KeyError):
            self._peers.links.send(CONTROLLER, Dismiss("the program is over"))
        wait(futures, ENDING_S)
        with contextlib.suppress(TimeoutExpired):
            self._controller.wait(ENDING_S)
        self._thread.join()
        self._controller.kill()  # One that did not end, or that took the place of a lost one just now.
        self._controller.wait()
        self._peers.links.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._closed = True
        atexit.unregister(self.close)

    # ---- the controller ---------------------------------------------------------------------------

    def _start_controller(self) -> Popen[bytes]:
        plan = self._plan
        self._known = sorted(self._jobs)
        settings = Settings(
            plan.workers, self._slots, plan.min_workers, plan.start_timeout_s, plan.snapshot_every_s,
            str(self._snapshots),
            self._controllers * EPOCHS_PER_CONTROLLER, self._next_worker, self._known, plan.plane,
        )  # fmt: skip
        orders = Orders(
            self._where, self._key, self._directory, plan.host, plan.transport, plan.allow_plaintext,
            settings, plan.spans_per_s > 0,
        )  # fmt: skip
        self._controllers += 1
        with self._lock:
            self._controller_where = None
        controller = Popen(
            command(CONTROLLER_MODULE, path=[entry or os.curdir for entry in sys.path]),
            stdin=PIPE,
            start_new_session=True,  # Ctrl-C is the program's.
        )
        assert controller.stdin is not None
        with contextlib.suppress(BrokenPipeError), controller.stdin as stdin:
            stdin.write(msgspec.msgpack.encode(orders))
        return controller

    def _controller_lost(self) -> None:
        """Start another one, which opens a new epoch."""
        self._controller.kill()
        status = self._controller.wait()
        if self._closing:
            return
        self._fruitless += 1
        if self._fruitless > CONTROLLERS_MAX:
            self._given_up = f"the controller ended {CONTROLLERS_MAX} times, the last time with status {status}"
            self._end_run(RunLost(self._given_up))
            return
        self._controller = self._start_controller()

    # ---- the thread -------------------------------------------------------------------------------

    def _serve(self) -> None:
        links = self._peers.links
        while not self._closing:
            try:
                links.wait(START_LOOK_S if self._controller_where is None else LOOK_S)
                came = links.receive()
                for _, message in came:  # What was printed comes before the error that came after it.
                    if isinstance(message, Printed):
                        self._print(message)
                for peer, message in came:
                    self._take(peer, message)
                for peer, _ in links.lost():
                    if peer == CONTROLLER:
                        self._controller_lost()
                self._see_schedulers()
                self._peers.send_waiting()
                links.flush()
                if self._controller_where is None and self._controller.poll() is not None and not self._given_up:
                    self._controller_lost()  # It ended before it had a link.
            except BaseException as error:  # Values that come are unpickled here, which may raise anything.
                self._fail(error)

    def _take(self, peer: int, message: Any) -> None:
        try:
            self._handle(peer, message)
        except BaseException as error:  # What came with the message is taken all the same.
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the run, as this thread cannot do what it is to do for it. The controller goes on with the run, and may
        wait for ever for what was not done: another one takes its place."""
        awaited = self._awaited
        if awaited is not None and not awaited.ended.is_set():
            self._end_run(error)
            self._controller_lost()

    def _handle(self, peer: int, message: Any) -> None:
        match message:
            case ControllerHere():
                self._controller_here(message.where)
            case Ask():
                for worker in message.workers:
                    self._submit(worker)
            case Withdraw():
                for worker in message.workers:
                    if worker in self._jobs:
                        self._jobs.pop(worker).cancel(running=True)
            case Want():
                for place in message.places:
                    self._peers.send(peer, Values(message.epoch, {place: self._given(place)}))
            case Over() | Returned() | GivenUp():
                self._see_run(peer, message)
            case Trim():
                self.needed_from = message.run
                with self._lock:
                    for run in [run for run in self._runs if run < message.run]:
                        del self._runs[run]
            case Progress():
                self._plan.progress(message)
            case Begin() | Answer() | Unknown():
                awaited = self._awaited
                if awaited is not None and awaited.caller is not None:
                    awaited.caller.put(message)
            case Recorded() | Happened():
                self._plan.record(message)

    def _see_schedulers(self) -> None:
        """Tell the controller that no scheduler can be reached, so that it waits for no workers, or that one can."""
        why = no_scheduler(self._client)
        if bool(why) is not self._is_cut_off:
            self._is_cut_off = bool(why)
            self._tell(Unreachable(why))

    def _controller_here(self, where: Where) -> None:
        with self._lock:
            self._controller_where = where
            self._told.clear()
            self._is_cut_off = False  # This one has not been told.
            self._tell_runs()
        jobs = list(self._jobs)
        for worker in set(self._known).difference(jobs):
            self._tell(Outcome(worker, "it ended while there was no controller"))
        for worker in jobs:
            with contextlib.suppress(KeyError):
                self._peers.links.post(worker, ControllerHere(where))

    def _submit(self, worker: int) -> None:
        """A worker's task."""
        assert self._controller_where is not None
        plan = self._plan
        self._next_worker = max(self._next_worker, worker + 1)
        order = Order(
            worker, self._key, self._where, self._controller_where, plan.transport, plan.allow_plaintext, plan.plane,
            plan.spans_per_s,
        )  # fmt: skip
        job = self._client.submit_job(
            JobSpec(
                [TaskSpec(msgspec.msgpack.encode(order), id=str(worker))],
                app=APP,
                name=f"dataflow worker {worker}",
                runtime=RUNTIME,
                lease_s=plan.lease_s,
                max_attempts=1,
            )
        )
        self._jobs[worker] = job
        job.futures[0].add_done_callback(lambda future: self._task_ended(worker, future))

    def _task_ended(self, worker: int, future: Future[Any]) -> None:
        """A worker's task is over; in the client's thread."""
        self._jobs.pop(worker, None)
        if self._closing:
            return
        error = "it was cancelled" if future.cancelled() else future.exception()
        self._tell(Outcome(worker, "" if error is None else str(error)))

    def _see_run(self, peer: int, message: Over | Returned | GivenUp) -> None:
        awaited = self._awaited
        if awaited is None or awaited.run != message.run or awaited.ended.is_set():
            return
        match message:
            case Over():
                awaited.over = message
            case Returned():
                awaited.values.update(message.values)
                if message.last:
                    awaited.done.add((message.epoch, peer))
            case GivenUp():
                self._end_run(_error_of(message))
                return
        if awaited.see():
            self._fruitless = 0
            self._peers.send(CONTROLLER, Received(awaited.run))
            awaited.end()

    def _end_run(self, error: BaseException) -> None:
        awaited = self._awaited
        if awaited is not None and not awaited.ended.is_set():
            self._runs.pop(awaited.run, None)
            raised = None if awaited.caller is None else awaited.caller.error
            awaited.error = error if raised is None else raised
            awaited.end()

    def _print(self, message: Printed) -> None:
        if not self._plan.lines.is_new(message):
            return
        stream = sys.stderr if message.is_error else sys.stdout
        stream.write(message.text)
        stream.flush()


def _error_of(message: GivenUp) -> BaseException:
    """Why a run has failed, to be raised in the program."""
    if not message.error:
        return RunLost(message.why)
    error: BaseException
    error, text = pickle.loads(message.error)
    return with_traceback(error, text)
