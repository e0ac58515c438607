"""CPython's own tests of executors, run against `SparrowExecutor`: `python -m tests.support.cpython_executor_tests`.

They are found in the interpreter that runs this, where it ships them (`test.test_concurrent_futures`: a module up to
Python 3.11, a package from 3.12 on); many builds ship without. Nothing of them is here. What cannot apply is not run:
`tests.support.cpython_cases` says why.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import importlib.util
import os
import pkgutil
import sys
import unittest
from collections.abc import Callable, Iterator
from concurrent.futures import Future as AnyFuture
from pathlib import Path
from types import ModuleType
from typing import Any

from sparrow_py import CallOptions, LocalCluster, SparrowExecutor
from sparrow_py.futures.task_future import TaskFuture
from tests.support.cpython_cases import CASES

THEIRS = "test.test_concurrent_futures"
WORKERS = 5
"""What CPython's tests give their pools."""
ADDRESS_VARIABLE = "CLUSTER_OF_CPYTHONS_TESTS"
INSTALL = f"import {__spec__.name} as adapter; adapter.install()\n"


def shipped() -> bool:
    """Whether this interpreter has the tests."""
    return importlib.util.find_spec("test") is not None and importlib.util.find_spec(THEIRS) is not None


class SparrowPool(SparrowExecutor):
    """A `SparrowExecutor` that is made as a process pool is, and whose tasks' output comes out here, as a pool's does.

    Its workers are those of the one cluster of all the tests.
    """

    def __init__(self, max_workers: int | None = None, mp_context: object = None) -> None:
        super().__init__(os.environ[ADDRESS_VARIABLE], options=CallOptions(capture_output=True))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> AnyFuture[Any]:
        """As every executor's."""
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(_print_output)
        return future


def _print_output(future: AnyFuture[Any]) -> None:
    assert isinstance(future, TaskFuture)
    if future.report is not None:
        sys.stdout.write(future.report.stdout)
        sys.stdout.flush()


def install() -> None:
    """Let programs of the tests find the pool where they look for one."""
    setattr(concurrent.futures, SparrowPool.__name__, SparrowPool)


class _NoJob:
    """Stands in for the job of futures that no executor has made."""

    def runs_here(self) -> bool:
        return False

    def find_out_whether_running(self, task: int) -> None:
        """Nobody is there to ask."""

    def cancel_futures(self, futures: list[TaskFuture]) -> int:
        for future in futures:
            AnyFuture.cancel(future)
        return len(futures)


class Future(TaskFuture):
    """A `TaskFuture` of no task, of the name that the tests expect."""

    def __init__(self) -> None:
        super().__init__(_NoJob(), 0)  # type: ignore[arg-type]


def modules() -> list[ModuleType]:
    """The modules that have the tests, with `Future` put in the place of the library's."""
    root = importlib.import_module(THEIRS)
    inner = pkgutil.iter_modules(root.__path__) if hasattr(root, "__path__") else []
    found = [root, *(importlib.import_module(f"{THEIRS}.{module.name}") for module in inner)]
    for module in found:
        if hasattr(module, "Future"):
            module.Future = Future  # type: ignore[attr-defined]
    ours: dict[int, Future] = {}
    for module in found:
        for name, value in list(vars(module).items()):
            if name.endswith("_FUTURE"):
                future = ours.setdefault(id(value), Future())
                vars(future).update(_state=value._state, _result=value._result, _exception=value._exception)
                setattr(module, name, future)
        if hasattr(module, "assert_python_ok"):
            module.assert_python_ok = _in_a_process(module.assert_python_ok)  # type: ignore[attr-defined]
    return found


def _in_a_process(run: Callable[..., Any]) -> Callable[..., Any]:
    """Runs `-c` programs with the pool installed."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    return lambda flag, program: run(flag, INSTALL + program, PYTHONPATH=path)


class _OfSparrow:
    """Goes before what says which executor is tested."""

    executor_type = SparrowPool

    def get_context(self) -> None:
        """A pool has one; no `SparrowExecutor` has."""


def cases(found: list[ModuleType]) -> Iterator[tuple[str, unittest.TestCase]]:
    """Each test with its name, once, however many executors the library runs it for."""
    [base] = {module.BaseTestCase for module in found if hasattr(module, "BaseTestCase")}
    [mixin] = {module.ExecutorMixin for module in found if hasattr(module, "ExecutorMixin")}
    for module in found:
        for theirs in [value for value in vars(module).values() if isinstance(value, type)]:
            names = [name for name in vars(theirs) if name.startswith("test_")]
            if theirs.__module__ != module.__name__ or not names:
                continue
            bases = (theirs,) if theirs.__name__ == "FutureTests" else (_OfSparrow, theirs, mixin, base)
            adapted = type(theirs.__name__, tuple(dict.fromkeys(bases)), {})
            for name in names:
                yield f"{theirs.__name__}.{name}", adapted(name)


def main() -> int:
    """Run what can apply; 1 if anything fails."""
    suite = unittest.TestSuite()
    known = 0
    for name, test in cases(modules()):
        case = CASES.get(name)
        known += case is not None
        if case is None or not case.reason:  # One that is new has to pass, or to be given a reason.
            suite.addTest(test)
    with LocalCluster(slots=WORKERS) as cluster:
        os.environ[ADDRESS_VARIABLE] = cluster.addresses[0]
        result = unittest.TextTestRunner(verbosity=2).run(suite)
    print(f"{known} of {len(CASES)} known cases are here, {result.testsRun} were run")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
