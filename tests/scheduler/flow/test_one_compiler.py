"""Of several processes that test, one compiles a kernel, and the others take what it has kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import clean_environment
from tests.support.one_compiler import LOCK, OneCompiler
from tests.support.waiting import TIMEOUT_S

KERNELS = """
from scheduler.flow.kernels import kernel

@kernel
def inner(number: int) -> int:
    return number + 1

@kernel
def outer(number: int) -> int:
    return inner(number) * 2
"""
CALLER = """
import sys
from pathlib import Path
from tests.support.one_compiler import compile_one_at_a_time

compile_one_at_a_time(Path(sys.argv[1]))
import kernels_of_a_test as kernels

sys.stdin.read()
assert kernels.outer(20) == 42
for function in (kernels.inner, kernels.outer):
    print(sum(function.stats.cache_misses.values()), end=" ")
"""


@pytest.mark.rest
@pytest.mark.processes
def test_each_kernel_is_compiled_once_by_processes_that_call_it_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "kernels_of_a_test.py").write_text(KERNELS)
    environment = clean_environment(NUMBA_CACHE_DIR=str(tmp_path / "kept"))
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    command = [sys.executable, "-c", CALLER, str(tmp_path / "locks")]
    callers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) for _ in range(2)
    ]
    for caller in callers:
        assert caller.stdin is not None
        caller.stdin.close()
    compiled = []
    for caller in callers:
        with caller:
            assert caller.wait(TIMEOUT_S) == 0
            assert caller.stdout is not None
            compiled.append(tuple(map(int, caller.stdout.read().split())))
    assert sorted(compiled) == [(0, 0), (1, 1)]


def test_who_has_the_lock_may_take_it_again_and_a_process_that_ended_has_it_no_longer(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        with OneCompiler(tmp_path).alone():
            os._exit(0)
    assert os.waitpid(pid, 0) == (pid, 0)
    compiler = OneCompiler(tmp_path)
    with compiler.alone(), compiler.alone():
        assert (tmp_path / LOCK).exists()
