"""Which functions a worker keeps from job to job."""

import functools
import math
import pickle
import time
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from frontends.python import kept_functions
from frontends.python.executor import Function, PythonExecutor
from frontends.python.kept_functions import KeptFunctions, is_its_modules, pickled_by_name
from sparrow_py import calls
from sparrow_py.executors import executor_protocol as x
from tests.support import tasks


class Worker:
    """A worker in this process, whose functions are counted as they are unpickled."""

    files_directory = ""
    """As its connection: no result here is large."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaded: list[Function] = []
        self.frames: list[list[Any]] = []
        self.said: list[Any] = []
        self.jobs = 0
        load = Function.load

        def counting(function: Function) -> Callable[..., Any]:
            self.loaded.append(function)
            return load(function)

        monkeypatch.setattr(Function, "load", counting)
        self._executor = PythonExecutor(self)  # type: ignore[arg-type]

    def receive(self, *, wait: bool) -> list[Any]:
        """As its connection."""
        if wait and not self.frames:
            raise EOFError
        return self.frames.pop(0) if self.frames else []

    def send(self, messages: list[Any]) -> None:
        """As its connection."""
        self.said += messages

    def job(self, function: Callable[..., Any], *args: Any, user: str = "ann", **fields: Any) -> Any:
        """What the only task of a job returns; the job is forgotten then."""
        self.jobs += 1
        common = x.Common(self.jobs, calls.encode_function(function, **fields))
        run = x.Run(self.jobs, self.jobs, calls.encode_arguments(args, {}), user=user)
        self.frames = [[common, run], [x.ForgetCommon(self.jobs)]]
        self._executor.serve()
        (done,) = self.said
        self.said = []
        return pickle.loads(done.result)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def by_value() -> Callable[[], int]:
    """A function that counts its calls."""
    made: list[int] = []

    def count() -> int:
        made.append(1)
        return len(made)

    return count


def test_a_function_that_is_a_name_is_unpickled_once(worker: Worker) -> None:
    assert [worker.job(tasks.square, number) for number in range(5)] == [0, 1, 4, 9, 16]
    assert len(worker.loaded) == 1


def test_another_user_gets_another_object(worker: Worker) -> None:
    for user in ("ann", "bob", "ann", "bob"):
        assert worker.job(tasks.square, 3, user=user) == 9
    first, second = worker.loaded
    assert first is not second


def test_a_closure_begins_anew_in_each_job(worker: Worker) -> None:
    count = by_value()
    assert [worker.job(count) for _ in range(3)] == [1, 1, 1]
    assert len(worker.loaded) == 3


def test_what_else_the_common_bytes_say_holds_for_its_own_job(worker: Worker) -> None:
    assert worker.job(tasks.square, 3, name="one") == 9
    assert worker.job(tasks.square, 3, name="two") == 9
    assert worker.job(tasks.square, 3, name="one") == 9
    assert [function.name for function in worker.loaded] == ["one", "two"]


def test_a_function_that_its_module_has_replaced_is_unpickled_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = calls.encode_function(tasks.square)
    assert worker.job(tasks.square, 3) == 9
    monkeypatch.setattr(tasks, "square", tasks.cube)
    monkeypatch.setattr(calls, "encode_function", lambda *_, **__: pickled)
    assert [worker.job(tasks.square, 3) for _ in range(2)] == [27, 27]
    assert len(worker.loaded) == 3, "its name is not that under which it is asked for"


@pytest.mark.parametrize("function", [tasks.square, tasks.square_later, math.sqrt, time.sleep, len, Exception])
def test_what_pickle_encodes_as_a_name(function: Callable[..., Any]) -> None:
    assert pickled_by_name(function, pickle.dumps(function, 5))


class Called:
    """Instances can be called."""

    def __call__(self) -> None:
        """Do nothing."""

    def method(self) -> None:
        """Do nothing."""


class Disguised(Called):
    """Instances say that they are a function of a module, and are pickled as they like."""

    def __init__(self) -> None:
        self.__module__ = tasks.__name__
        self.__qualname__ = "square"

    def __reduce__(self) -> Any:
        return make_square, ()


def make_square() -> Callable[[int], int]:
    """A function that is called whenever a `Disguised` is unpickled."""
    return tasks.square


@pytest.mark.parametrize(
    "function",
    [
        by_value(),
        lambda: None,
        Called(),
        Called().method,
        Called.method,
        Disguised(),
        functools.partial(len),
        [].append,
    ],
)
def test_what_pickle_does_not_encode_as_a_name(function: Any) -> None:
    pickled = cloudpickle.dumps(function, protocol=5)
    assert not pickled_by_name(pickle.loads(pickled), pickled)


def test_bytes_that_do_more_than_name_the_function_are_not_kept() -> None:
    pickled = pickle.dumps(Disguised(), 5)
    assert pickle.loads(pickled) is tasks.square
    assert not pickled_by_name(tasks.square, pickled)


def test_a_module_that_was_removed_is_imported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_its_modules(tasks.square)
    monkeypatch.delitem(kept_functions.sys.modules, tasks.__name__)
    assert not is_its_modules(tasks.square)


class Standing:
    """A function that is what it was."""

    def __init__(self, stands: bool = True) -> None:
        self._stands = stands

    def stands(self) -> bool:
        return self._stands


def test_so_many_are_kept_and_the_first_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_functions, "FUNCTIONS_MAX", 3)
    kept: KeptFunctions[Standing] = KeptFunctions()
    functions = [Standing() for _ in range(5)]
    for number, function in enumerate(functions):
        kept.keep("ann", bytes([number]), function)
        assert len(kept) == min(number + 1, 3)
    assert [kept.get("ann", bytes([number])) for number in range(5)] == [None, None, *functions[2:]]
    assert kept.get("bob", bytes([4])) is None


def test_one_that_stands_no_more_goes_and_long_bytes_are_not_kept() -> None:
    kept: KeptFunctions[Standing] = KeptFunctions()
    kept.keep("ann", b"1", Standing(stands=False))
    kept.keep("ann", bytes(kept_functions.COMMON_BYTES_MAX + 1), Standing())
    assert len(kept) == 1
    assert kept.get("ann", b"1") is None
    assert len(kept) == 0
