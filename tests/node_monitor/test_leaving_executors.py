"""The pool of executors and processes that end in two steps: the socket and the process, in either order."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
import uvloop

from node_monitor.executors.apps import App
from node_monitor.executors.executor_state import AppPlan
from node_monitor.executors.executors import ExecutorPool
from sparrow_py.executors import executor_protocol as x
from tests.support.stores import store_in
from tests.support.waiting import TIMEOUT_S

EXECUTOR = """
import os, sys, time
from sparrow_py.executors.executor_connection import ExecutorConnection
connection = ExecutorConnection.from_environment("pool")
connection.receive()
if sys.argv[1] == "hangs up":
    connection.close()
elif os.fork():
    os._exit(0)
time.sleep(60)  # With the connection open: the child has it, too.
"""


class Recorder:
    """What the pool tells of its executors."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        """Event to executor or reason, in order."""

    def executor_up(self, executor: str, app: str, places: int, version: int) -> None:
        self.told["up"] = executor

    def executor_failed(self, app: str, reason: str) -> None:
        self.told["failed"] = reason

    def executor_leaving(self, executor: str) -> None:
        self.told["leaving"] = executor

    def executor_down(self, executor: str, reason: str, failure: str = "") -> None:
        self.told["down"] = reason

    def user_of(self, executor: str, run: int) -> str:
        return ""

    def executor_said(self, executor: str, messages: list[Any]) -> None:
        self.told["said"] = executor

    async def heard(self, event: str) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while event not in self.told:
                await asyncio.sleep(0.005)


@pytest.mark.parametrize(("what", "end"), [("hangs up", "was killed by SIGKILL"), ("ends", "exited with code 0")])
def test_an_executor_is_known_to_leave_before_it_is_down_and_to_send_to_it_is_no_error(what: str, end: str) -> None:
    async def live() -> None:
        recorder, store = Recorder(), store_in()
        pool = ExecutorPool({"pool": App(AppPlan("pool"), (sys.executable, "-c", EXECUTOR, what))}, recorder, store)
        await pool.start()
        try:
            pool.start_executor("pool", 1)
            for run, event in enumerate(("up", "leaving")):
                await recorder.heard(event)
                pool.send("pool-1", x.Run(run, 0, b""))
                pool.flush()
            await recorder.heard("down")
        finally:
            await pool.stop()
            await store.stop()
        assert list(recorder.told.items()) == [
            ("up", "pool-1"), ("leaving", "pool-1"), ("down", f"executor pool-1 {end}"),
        ]  # fmt: skip

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # As daemons do: its transports differ.
        runner.run(live())
