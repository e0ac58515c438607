"""A loop that has nothing to do gives a task's slot back, and nothing happens in it before the slot is there again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sparrow_py import task_context
from sparrow_py.errors import WaitRefused
from sparrow_py.session.idle_loop import LongStart, give_slot_while_idle


class Task:
    """A task that notes when it has a slot."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.refuses = False

    def without_slot(self, wait: Callable[[], bool]) -> bool:
        if self.refuses:
            raise WaitRefused("too many wait")
        self.story.append("gives it back")
        try:
            return wait()
        finally:
            self.story.append("has it again")


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    task = Task()
    monkeypatch.setattr(task_context, "_task_of_process", task)
    return task


def session(in_flight: int = 1) -> Any:
    failed: list[Exception] = []
    return SimpleNamespace(
        core=SimpleNamespace(jobs=dict.fromkeys(range(in_flight))), fail=failed.append, failed=failed
    )


def run(task: Task, of: Any, waits: Callable[[], Any], start: LongStart | None = None) -> None:
    async def main() -> None:
        restore = give_slot_while_idle(asyncio.get_running_loop(), of, start or LongStart())
        task.story.append("begins")
        await waits()
        task.story.append("goes on")
        restore()
        await asyncio.sleep(0.001)

    loop = asyncio.SelectorEventLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_while_it_waits(task: Task) -> None:
    run(task, session(), lambda: asyncio.sleep(0.001))
    assert task.story == ["begins", "gives it back", "has it again", "goes on"]


def test_not_while_it_works_or_nothing_is_in_flight(task: Task) -> None:
    run(task, session(), lambda: asyncio.sleep(0))
    run(task, session(in_flight=0), lambda: asyncio.sleep(0.001))
    assert task.story == ["begins", "goes on"] * 2


def test_a_wait_that_is_refused_ends_the_clients_jobs_and_not_the_loop(task: Task) -> None:
    task.refuses = True
    of = session()

    async def waits() -> None:
        while not of.failed:
            await asyncio.sleep(0.001)
        of.core.jobs.clear()

    run(task, of, waits)
    assert task.story == ["begins", "goes on"] and isinstance(of.failed[0], WaitRefused)


def test_a_loop_that_does_not_tell_when_it_waits_is_refused() -> None:
    with pytest.raises(RuntimeError, match="needs an event loop of asyncio's own"):
        give_slot_while_idle(SimpleNamespace(), session(), LongStart())  # type: ignore[arg-type]


def test_a_client_that_starts_gives_it_back_once_that_takes_long(task: Task) -> None:
    start = LongStart()

    async def waits() -> None:
        await asyncio.sleep(0.001)
        start.goes_on = True
        await asyncio.sleep(0.001)
        start.goes_on = False
        await asyncio.sleep(0.001)

    run(task, session(in_flight=0), waits, start)
    assert task.story == ["begins", "gives it back", "has it again", "goes on"]


def test_one_that_may_not_wait_starts_with_its_slot(task: Task) -> None:
    task.refuses = True
    start, of = LongStart(), session(in_flight=0)
    start.goes_on = True
    run(task, of, lambda: asyncio.sleep(0.001), start)
    assert task.story == ["begins", "goes on"] and not start.goes_on and not of.failed
