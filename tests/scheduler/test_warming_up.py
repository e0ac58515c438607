"""What problems need is made ready before the first of them, in a process of its own where that takes long."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from scheduler import warming_up
from scheduler.planes import WarmUp
from scheduler.solving import Solving
from scheduler.warming_up import WarmingUp
from tests.support.waiting import TIMEOUT_S

SLEEPS = "import sys, time; open(sys.argv[1], 'w').write('here'); time.sleep(600)"
FAILS = "import sys; open(sys.argv[1], 'w'); sys.exit(3)"
ENDS = "import sys; open(sys.argv[1], 'w')"


class Rig:
    """A solver of problems that are texts; `done` is what was computed, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, begun: Path, code: str, *, compiled: bool = False) -> None:
        monkeypatch.setattr(warming_up, "command", lambda module, parent: ["python3", "-c", code, str(begun)])
        self.begun = begun
        self.done: list[str] = []
        self.solving = Solving(lambda number, answer: self.done.append(f"answer {answer}"))
        self.warming_up = WarmingUp(WarmUp(self.works("warm"), lambda: compiled, "no.module"), self.solving)

    def works(self, text: str) -> Callable[[], str]:
        def work() -> str:
            self.done.append(text)
            return text

        return work

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("code", [ENDS, FAILS])
@pytest.mark.processes
async def test_problems_wait_for_the_process_that_compiles_and_for_what_follows(
    code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rig = Rig(monkeypatch, tmp_path / "begun", code)
    rig.warming_up.start()
    rig.solving.solve(1, rig.works("problem"))
    looked = rig.solving.compute(rig.works("look"))
    assert rig.solving.holds
    async with asyncio.timeout(TIMEOUT_S):
        assert await looked == "look"
    await rig.until(lambda: "answer problem" in rig.done)
    assert rig.warming_up.is_over and rig.begun.exists() and not rig.solving.holds
    assert [text for text in rig.done if not text.startswith("answer")] == ["warm", "problem", "look"]
    rig.solving.stop()


async def test_what_is_compiled_already_is_made_ready_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rig = Rig(monkeypatch, tmp_path / "begun", SLEEPS, compiled=True)
    rig.warming_up.start()
    assert not rig.warming_up.is_over
    await rig.until(lambda: rig.warming_up.is_over)
    assert rig.done == ["warm"] and not rig.begun.exists()
    rig.solving.stop()


@pytest.mark.processes
async def test_an_end_meanwhile_ends_the_process_that_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rig = Rig(monkeypatch, tmp_path / "begun", SLEEPS)
    rig.warming_up.start()
    rig.solving.solve(1, rig.works("problem"))
    looked = rig.solving.compute(rig.works("look"))
    await rig.until(lambda: rig.begun.exists() and rig.begun.read_text() == "here")
    rig.solving.stop()
    await rig.warming_up.stop()
    assert looked.cancelled() and not rig.done
    children = psutil.Process(os.getpid()).children()
    assert not [child for child in children if child.status() != psutil.STATUS_ZOMBIE and SLEEPS in child.cmdline()]


async def test_what_cannot_be_made_ready_is_logged_and_problems_are_solved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(monkeypatch, tmp_path / "begun", ENDS, compiled=True)

    def fails() -> None:
        raise ValueError("no compiler")

    rig.warming_up = WarmingUp(WarmUp(fails, lambda: True, "no.module"), rig.solving)
    rig.warming_up.start()
    async with asyncio.timeout(TIMEOUT_S):
        assert await rig.solving.compute(rig.works("look")) == "look"
    await rig.until(lambda: rig.warming_up.is_over)
    assert "could not be made ready" in caplog.text and "no compiler" in caplog.text
    rig.solving.stop()
