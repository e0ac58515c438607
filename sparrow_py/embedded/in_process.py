"""Daemons in this process, and so the one module of the library that imports them: when one is started.

That is for `SchedulerHere` and `LocalCluster(in_process=True)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any

from sparrow_py.calls import APP, RUNTIME
from sparrow_py.errors import ClusterError
from sparrow_py.executors.executor_connection import ExecutorConnection
from sparrow_py.own_packages import require_here
from sparrow_py.processes.process_bound import descriptor_of, let_go
from sparrow_py.session.event_loop import new_event_loop
from sparrow_py.task_context import enter_thread

START_TIMEOUT_S = 30.0
CONNECT_AGAIN_S = 0.01
"""A worker that is a thread waits so long before it connects again."""
INSTEAD_OF_SCHEDULER_HERE = "run the scheduler as a process of its own (sparrow-scheduler), where it is not in the way"
INSTEAD_OF_IN_PROCESS = "leave out in_process: it is not in the way of daemons that are processes of their own"


def new_scheduler(flags: Sequence[str]) -> Any:
    """A scheduler with these command-line flags, not started yet."""
    require_here("SchedulerHere", ["scheduler"], INSTEAD_OF_SCHEDULER_HERE)
    from click import ClickException

    from scheduler.daemon import SchedulerDaemon
    from scheduler.options import SchedulerOptions
    from sparrow_py.daemon.options import parse

    try:
        options = parse(SchedulerOptions, list(flags))
    except ClickException as error:
        raise ClusterError(f"the scheduler did not start: {error.format_message()}") from None
    return SchedulerDaemon(options)


class DaemonsInProcess:
    """All daemons on a loop in a thread of this process, and Python workers as threads."""

    def __init__(self, schedulers: int, node_monitors: int, scheduler_flags: list[str], node_flags: list[str]) -> None:
        packages = ("scheduler", "node_monitor", "frontends")
        require_here("LocalCluster(in_process=True)", packages, INSTEAD_OF_IN_PROCESS)
        self.addresses: list[str] = []
        self._daemons: list[Any] = []
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sparrow-cluster", daemon=True)
        self._thread.start()
        try:
            self._run(self._start(schedulers, node_monitors, scheduler_flags, node_flags))
        except BaseException:
            self.stop()
            raise

    async def _start(
        self, schedulers: int, node_monitors: int, scheduler_flags: list[str], node_flags: list[str]
    ) -> None:
        from node_monitor.daemon import NodeMonitorDaemon
        from node_monitor.options import NodeMonitorOptions
        from scheduler.daemon import SchedulerDaemon
        from scheduler.options import SchedulerOptions
        from sparrow_py.daemon.options import parse

        for _ in range(schedulers):
            scheduler = SchedulerDaemon(parse(SchedulerOptions, ["--port", "0", *scheduler_flags], environment=False))
            self._daemons.append(scheduler)
            self.addresses.append((await scheduler.start())["address"])
        for number in range(node_monitors):
            flags = ["--port", "0", "--node-id", f"node-{number}", "--scheduler", ",".join(self.addresses), *node_flags]
            node_monitor = NodeMonitorDaemon(parse(NodeMonitorOptions, flags, environment=False), attached=("python",))
            self._daemons.append(node_monitor)
            await node_monitor.start()
            for node in node_monitor.nodes:
                for _ in range(node.slots):
                    threading.Thread(target=_serve_calls, args=(node.pool.socket_path,), daemon=True).start()

    def _run(self, coroutine: Any) -> Any:
        from click import ClickException

        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_TIMEOUT_S)
        except ClickException as error:
            raise ClusterError(f"a daemon did not start: {error.format_message()}") from None

    def forked(self) -> None:
        """In a child of the process: let go of the loop, which nobody runs there."""
        let_go([descriptor_of(self._loop)])

    def stop(self) -> None:
        """Stop the daemons, node monitors first; the worker threads end as their sockets close."""
        if self._loop.is_closed():
            return
        for daemon in reversed(self._daemons):
            self._run(daemon.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _serve_calls(socket_path: str) -> None:
    """A Python worker as a thread, which connects again when it has been cut off, until the cluster is stopped."""
    from frontends.python.executor import PythonExecutor

    while True:
        try:
            connection = ExecutorConnection(socket_path)
        except OSError:  # The cluster has been stopped.
            return
        with contextlib.suppress(OSError):
            connection.hello(APP, runtime=RUNTIME)
            executor = PythonExecutor(connection)
            enter_thread(executor.yields)
            executor.serve()
        connection.close()
        # Nobody can kill a thread: of a task that was to be stopped it was cut off, and the task has ended by itself.
        time.sleep(CONNECT_AGAIN_S)
