"""The work of the sql executor: it holds partitions, and runs fragments over them.

There is one process per node, with a place for each slot. It holds partitions in memory, names them in its node's
attributes, and runs each fragment in a thread of its own: DuckDB and Arrow release the interpreter's lock while they
work. A fragment for a partition that is not held, because the executor was started again, say, loads it first.

The executor serves all users of the node, and trusts no payload: `access` says who may read which data sets, `engine`
what a fragment may do.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import duckdb
import msgspec

from frontends.sql.access import DataAccess
from frontends.sql.dataset import ATTRIBUTE_PREFIX
from frontends.sql.held_datasets import HeldDatasets
from frontends.sql.results import decode_tables, encode_table
from frontends.sql.tasks import APP, Drop, Fragment, Load, decode_task
from sparrow_py.errors import SparrowError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_connection import ExecutorConnection, places_from_environment
from sparrow_py.executors.executor_files import load, read, store
from sparrow_py.job import TaskStatus

KILLED = "it was killed"
ERROR_CHARS_MAX = 2000
INTERRUPT_EVERY_S = 0.02
Outcome = tuple[TaskStatus, x.Data, str]


class SqlExecutor:
    """Runs what the node monitor at the other end of the connection sends, `places` at a time."""

    def __init__(self, connection: ExecutorConnection, places: int, access: DataAccess) -> None:
        self._connection = connection
        self._send_lock = threading.Lock()
        self._threads = ThreadPoolExecutor(places, thread_name_prefix="fragment")
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[None]] = {}
        """Runs that have not started."""
        self._cursors: dict[int, duckdb.DuckDBPyConnection] = {}
        """The cursor of each run that DuckDB works on."""
        self._killed: set[int] = set()
        self._running: set[int] = set()
        self._held = HeldDatasets(access, self._advertise)

    def serve(self) -> None:
        """Run tasks until the node monitor closes the connection."""
        try:
            while True:
                for message in self._connection.receive():
                    self._handle(message)
        except (EOFError, ConnectionError):
            # Results are of no use to anybody any more, and threads cannot be ended.
            os._exit(0)

    def _handle(self, message: Any) -> None:
        if isinstance(message, x.Run):
            with self._lock:
                self._waiting[message.run] = self._threads.submit(self._run_task, message)
        elif isinstance(message, x.Revoke):
            with self._lock:
                revoked = [run for run in message.runs if run in self._waiting and self._waiting[run].cancel()]
                for run in revoked:
                    del self._waiting[run]
            self._send(x.Returned(revoked))
        elif isinstance(message, x.Kill):
            self._kill(message.runs)

    def _kill(self, runs: list[int]) -> None:
        """Kill these runs. One that loads data, or is about to send its result, goes on to its end."""
        with self._lock:
            self._killed.update(run for run in runs if run in self._waiting or run in self._running)
        threading.Thread(target=self._interrupt, args=(runs,), name="kill", daemon=True).start()

    def _interrupt(self, runs: list[int]) -> None:
        """Interrupt DuckDB until these runs have ended: it forgets an interrupt that comes just before it begins."""
        while True:
            with self._lock:
                left = [self._cursors[run] for run in runs if run in self._killed and run in self._cursors]
                for cursor in left:
                    cursor.interrupt()
            if not left:
                return
            time.sleep(INTERRUPT_EVERY_S)

    def _send(self, message: x.ExecutorMessage) -> None:
        with self._send_lock:
            self._connection.send([message])

    def _advertise(self, held: Mapping[str, list[int]]) -> None:
        self._send(x.Attributes({ATTRIBUTE_PREFIX + key: ",".join(map(str, held[key])) for key in held}))

    # ---- a run, in a thread ------------------------------------------------------------------

    def _run_task(self, run: x.Run) -> None:
        with self._lock:
            self._waiting.pop(run.run, None)
            self._running.add(run.run)
        started_at_s, started_s = time.time(), time.perf_counter()
        try:
            status, result, error = self._outcome(run)
        except Exception as failure:  # Else nobody would see the exception, and the run would never end.
            status, result, error = TaskStatus.FAILED, b"", f"{type(failure).__name__}: {failure}"
        service_s = time.perf_counter() - started_s
        with self._lock:
            self._running.discard(run.run)
            if run.run in self._killed and status is TaskStatus.FAILED:
                error = KILLED
            self._killed.discard(run.run)
        try:
            self._send(x.Done(run.run, status, result, error[:ERROR_CHARS_MAX], started_at_s, service_s))
        except ConnectionError:
            os._exit(0)

    def _outcome(self, run: x.Run) -> Outcome:
        """Status, result and error of this run."""
        try:
            task = decode_task(read(run.payload))
            if isinstance(task, Load):
                held = self._held.load(run.user, task.directory, task.partitions)
                return TaskStatus.FINISHED, msgspec.json.encode(held), ""
            if isinstance(task, Drop):
                self._held.drop(run.user, task.dataset)
                return TaskStatus.FINISHED, b"", ""
            return TaskStatus.FINISHED, self._answer(run, task), ""
        except (SparrowError, OSError) as error:
            return TaskStatus.FAILED, b"", str(error)

    def _answer(self, run: x.Run, task: Fragment) -> x.Data:
        """The fragment's result. It is a file, which stays on this node, unless it is small and the query's result."""
        source = self._held.tables_for(run.user, task.directory, task.partition)
        contents = iter([load(data) for data in run.inputs])
        inputs = {
            entry.table: decode_tables([next(contents) for _ in range(entry.results)], entry.bucket)
            for entry in task.inputs
        }
        with source.engine.cursor() as cursor:
            with self._lock:
                if run.run in self._killed:
                    raise SparrowError(KILLED)
                self._cursors[run.run] = cursor
            try:
                table = source.engine.select(cursor, task.sql, source.schemas, inputs)
            finally:
                with self._lock:
                    del self._cursors[run.run]
        result = encode_table(table, task.buckets)
        directory = self._connection.files_directory
        return store(result, directory) if task.last else store(result, directory, inline_bytes_max=0)


def access_from_arguments(arguments: Sequence[str]) -> DataAccess:
    """`--data [USER=]DIR`, any number of them, or `--any-data`; without arguments no data set may be loaded."""
    parser = argparse.ArgumentParser(prog="frontends.sql.executor")
    parser.add_argument("--data", action="append", default=[], metavar="[USER=]DIR")
    parser.add_argument("--any-data", action="store_true")
    given = parser.parse_args(arguments)
    return DataAccess(None if given.any_data else given.data)


def serve(arguments: Sequence[str]) -> int:
    """Be an executor with these arguments until the node monitor goes away; the process's exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        access = access_from_arguments(arguments)
        places = places_from_environment()
        connection = ExecutorConnection.from_environment(APP, places=places, runtime=f"duckdb {duckdb.__version__}")
    except (SparrowError, OSError) as error:
        print(f"sparrow sql executor: {error}", file=sys.stderr)
        return 1
    SqlExecutor(connection, places, access).serve()
    return 0
