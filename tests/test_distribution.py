"""Of several processes that run tests, each file has one; tests that run alone come last, in processes of their own."""

import contextlib
import itertools
import select
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.distribution import ALONE_PROCESSES, IN_A_ROW, ByFile
from tests.support.suites import ALONE, ONE_FILE_AT_A_TIME

ROOT = Path(__file__).parents[1]


class Worker:
    """Stands in for a process: what it was told to run, in this order."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.told: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def run(tests: list[str], processes: int, slow: Collection[int] = ()) -> list[list[str]]:
    """What each process runs. Each starts a test only when it knows the next one, or that there is none. slow: those
    that end one test while others end four."""
    option = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(option=option, getvalue=lambda name: ["popen"] * processes)
    distribution = ByFile(config, None)
    workers: list[Any] = [Worker(number) for number in range(processes)]
    for worker in workers:
        distribution.add_node(worker)
        distribution.add_node_collection(worker, tests)
    distribution.schedule()
    ended = [0] * processes
    for turn in itertools.count():
        if sum(ended) == len(tests):
            break
        ready = [
            number
            for number, worker in enumerate(workers)
            if len(worker.told) - ended[number] > (not worker.shutting_down)
        ]
        assert ready, "no process goes on"
        for number in [number for number in ready if number not in slow or turn % 4 == 0]:
            ended[number] += 1
            distribution.mark_test_complete(workers[number], workers[number].told[ended[number] - 1])
    assert all(worker.shutting_down for worker in workers)
    return [[tests[index] for index in worker.told] for worker in workers]


FILES = [f"tests/system/test_{number}.py::test_{test}" for number in range(9) for test in range(5)]
ROWS = [f"{ALONE[0]}::test_row[{number}]" for number in range(40)]


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_all_tests_run_once_those_that_run_alone_last(processes: int) -> None:
    ran = run(FILES + ROWS, processes)
    assert sorted(itertools.chain(*ran)) == sorted(FILES + ROWS)
    for tests in ran:
        alone = [test in ROWS for test in tests]
        assert alone == sorted(alone)
    assert sum(any(test in ROWS for test in tests) for tests in ran) == min(processes, ALONE_PROCESSES)


def test_a_file_and_a_directory_of_few_compilers_are_of_one_process() -> None:
    shared = [f"{ONE_FILE_AT_A_TIME[0]}test_{number}.py::test" for number in range(4)]
    homes = defaultdict(set)
    for number, tests in enumerate(run(FILES + shared, 3)):
        for test in tests:
            homes[ONE_FILE_AT_A_TIME[0] if test in shared else test.partition("::")[0]].add(number)
    assert all(len(numbers) == 1 for numbers in homes.values())


@pytest.mark.parametrize("processes", [ALONE_PROCESSES, ALONE_PROCESSES + 1])
def test_those_that_run_alone_are_dealt_out_in_turns_of_neighbours(processes: int) -> None:
    groups = [tests for tests in run(ROWS, processes) if tests]
    assert len(groups) == ALONE_PROCESSES
    assert groups[0] == [row for number, row in enumerate(ROWS) if number // IN_A_ROW % ALONE_PROCESSES == 0]
    assert max(map(len, groups)) - min(map(len, groups)) <= IN_A_ROW


def test_a_process_that_is_slow_runs_fewer_of_those_that_run_alone() -> None:
    quick, slow = run(ROWS, 2, slow={1})
    assert len(slow) < len(quick) / 2
    for tests in quick, slow:
        for first in range(0, len(tests) - IN_A_ROW, IN_A_ROW):
            at = ROWS.index(tests[first])
            assert tests[first : first + IN_A_ROW] == ROWS[at : at + IN_A_ROW]


def test_when_a_process_that_runs_tests_alone_has_crashed_another_takes_its_place() -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda name: ["popen"] * ALONE_PROCESSES)
    distribution = ByFile(config, None)
    workers: list[Any] = [Worker(number) for number in range(ALONE_PROCESSES + 1)]
    for worker in workers[:-1]:
        distribution.add_node(worker)
        distribution.add_node_collection(worker, ROWS)
    distribution.schedule()
    assert distribution.remove_node(workers[0]) == ROWS[0]
    distribution.add_node(workers[-1])
    distribution.add_node_collection(workers[-1], ROWS)
    distribution.schedule()
    assert workers[-1].told and not workers[-1].shutting_down


PROCESS = """
import pathlib, sys
from tests.support.others import Others

others = Others(pathlib.Path(sys.argv[1]))
print("here", flush=True)
for order in sys.stdin:
    print("waits", flush=True)
    getattr(others, order.strip())()
    print("alone", flush=True)
"""
"""Has other tests left, until it is told to wait for those of others, or to leave."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    """Starts such a process; none is left."""
    with contextlib.ExitStack() as stack:

        def start() -> "subprocess.Popen[str]":
            command = [sys.executable, "-c", PROCESS, str(tmp_path / "others")]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, bufsize=1)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert heard(process) == "here"
            return process

        yield start


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]", order: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{order}\n")
    process.stdin.flush()


@pytest.mark.parametrize("end", ["leave", "kill", "wait_until_over"])
def test_tests_that_run_alone_wait_for_all_others(start: Callable[[], "subprocess.Popen[str]"], end: str) -> None:
    """Two processes wait for a third to leave, to die, or to wait as they do."""
    busy, *waiting = [start() for _ in range(3)]
    for process in waiting:
        tell(process, "wait_until_over")
        assert heard(process) == "waits"
    assert not select.select([process.stdout for process in waiting], [], [], 0)[0]
    if end == "kill":
        busy.kill()
    else:
        tell(busy, end)
    assert [heard(process) for process in waiting] == ["alone", "alone"]
    for process in waiting:  # Whoever has waited once does not wait again.
        tell(process, "wait_until_over")
        assert [heard(process), heard(process)] == ["waits", "alone"]
