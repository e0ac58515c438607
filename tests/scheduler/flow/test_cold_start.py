"""A scheduler that has to have its solvers compiled."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import psutil
import pytest

from tests.support.daemons import Daemon, http
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real_starts


def compilers(daemon: Daemon) -> list[psutil.Process]:
    """The processes that compile for it."""
    children = psutil.Process(daemon.process.pid).children()
    return [child for child in children if "scheduler.flow.compile_solvers" in child.cmdline()]


@pytest.mark.rest
@pytest.mark.processes
def test_an_end_while_solvers_are_compiled_waits_for_nothing_and_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = {"NUMBA_CACHE_DIR": str(cache)}
    with Daemon("scheduler", "--policy", "flow", log=tmp_path / "log", **environment) as daemon:
        wait_until(lambda: bool(compilers(daemon)), "the process that compiles")
        (compiler,) = compilers(daemon)
        status, why = http(daemon.address, "/readyz")
        assert status == 503 and "the solvers are being compiled" in why
        wait_until(lambda: bool(list(cache.rglob("*.nbi"))), "some of it to be compiled")
        daemon.signal()
        assert daemon.wait() == 0
        wait_until(lambda: not compiler.is_running(), "the end of the process that compiles")
    for index in cache.rglob("*.nbi"):
        file = io.BytesIO(index.read_bytes())
        pickle.load(file)
        assert pickle.load(file), f"{index} is cut off"
    assert not list(cache.rglob("sparrow-compiled*"))
