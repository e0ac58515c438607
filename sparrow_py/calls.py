"""Python calls as tasks of the app `python`: how they and their results are encoded.

The function is the job's common bytes, pickled once; each task's payload is its arguments. An
argument may stand for results of earlier stages (`ResultOf`): the payload then says which of the
task's inputs to put in its place.
Pickle is only ever decoded in the Python executor and in the client that asked for it.
"""

from __future__ import annotations

import io
import itertools
import mmap
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import cloudpickle
import msgspec

from sparrow_py import function_pickling, stored_values
from sparrow_py.errors import SparrowError
from sparrow_py.executors.executor_protocol import Data
from sparrow_py.job import InputName, TaskResult, TaskSpec
from sparrow_py.local_modules import PackedModule
from sparrow_py.stored_values import Asked, AwaitedFuture, StandsForInput, StoredValue, call_spec
from sparrow_py.unpicklable import raise_explained

APP = "python"
RUNTIME = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""What the workers must run too: pickled functions are good for one minor version of Python."""

MULTIPROCESSING_MAIN = "__mp_main__"
"""What the main script is called in the children of multiprocessing that are not forked."""
FUNCTION_NAME_CHARS_MAX = 60
_PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
"""Types that pickle itself encodes well; anything else may refer to `__main__`, which cloudpickle sees to."""
_NO_CALL = pickle.dumps(((), {}), protocol=5)
_encode = msgspec.msgpack.Encoder().encode


class PythonCommon(msgspec.Struct, array_like=True, frozen=True):
    """Common bytes of a job of calls. `chunked`: each payload holds several calls' arguments. `name`: the job's, or
    empty: then lines that they print are marked with the function's. `retry_on`: the tuple of exception classes after
    which calls run again, pickled; empty: none. `modules`: what the calls can import besides."""

    function: bytes
    capture_output: bool = False
    chunked: bool = False
    name: str = ""
    retry_on: bytes = b""
    modules: tuple[PackedModule, ...] = ()


def encode_function(
    function: Callable[..., Any],
    *,
    name: str = "",
    capture_output: bool = False,
    chunked: bool = False,
    retry_on: tuple[type[BaseException], ...] = (),
    modules: tuple[PackedModule, ...] = (),
) -> bytes:
    """The common bytes for calls of `function`, in a job or stage that was given a `name`; raises what pickling raises
    if it cannot be pickled."""
    pickled = pickle.dumps(function, 5) if _importable(function) else _by_value(function)
    return _encode(PythonCommon(pickled, capture_output, chunked, name, _encode_classes(retry_on), modules))


def _encode_classes(retry_on: tuple[type[BaseException], ...]) -> bytes:
    if not retry_on:
        return b""
    try:
        return function_pickling.dumps(retry_on)
    except Exception as error:
        raise_explained(error, [(f"retry_on[{index}]", one) for index, one in enumerate(retry_on)])


def function_name(function: Callable[..., Any]) -> str:
    """A function's name, as `sparrow jobs` shows it."""
    name = getattr(function, "__qualname__", None)
    if name is None:
        name = type(function).__qualname__
    if type(name) is str and name.isprintable():
        return name[:FUNCTION_NAME_CHARS_MAX]
    return "".join(c for c in name if c.isprintable())[:FUNCTION_NAME_CHARS_MAX]


def _importable(function: Callable[..., Any]) -> bool:
    """Whether workers get the function by importing its module, so that its name is all there is to pickle."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module == MULTIPROCESSING_MAIN and module in sys.modules:  # For what it refers to, and for arguments, too.
        cloudpickle.register_pickle_by_value(sys.modules[module])
    if module is None or module == "__main__" or cloudpickle.list_registry_pickle_by_value():
        return False
    return getattr(sys.modules.get(module), name, None) is function


def _by_value(function: Callable[..., Any]) -> bytes:
    try:
        return function_pickling.dumps(function)
    except Exception as error:
        raise_explained(error, [(f"the function {_name_of(function)}", function)])


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def encode_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], *, named: str = "args") -> bytes | TaskSpec:
    """The task of one call: its payload, with the stored values that it asks for if there are any. Raises what pickling
    raises if an argument cannot be pickled, with a note of where that is. `named`: what the call's positional arguments
    are for whoever made it.

    `TypeError` for what works in this process alone, as clients and futures.
    """
    if not kwargs:
        if not args:
            return _NO_CALL
        if all(type(argument) in _PLAIN for argument in args):
            return pickle.dumps((args, kwargs), protocol=5)
    asked = Asked()
    with asked:
        try:
            payload = _dumps(args, kwargs)
        except SparrowError:
            raise
        except Exception as error:
            raise_explained(error, _parts(named, args, kwargs))
    return asked.task(payload)


def _dumps(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The arguments, pickled. Where pickle itself will do, a call of two futures takes half the time."""
    if not kwargs and all(type(argument) in _PLAIN or isinstance(argument, StandsForInput) for argument in args):
        return pickle.dumps((args, kwargs), protocol=5)
    return function_pickling.dumps((args, kwargs))


def _parts(named: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments of a call with what they are called."""
    yield from ((f"{named}[{index}]", argument) for index, argument in enumerate(args))
    yield from ((f"kwargs[{name!r}]", argument) for name, argument in kwargs.items())


def encode_chunks(iterables: Iterable[Iterable[Any]], chunksize: int) -> Iterator[bytes | TaskSpec]:
    """The tasks of a `chunked` function's calls over the iterables, `chunksize` calls to each; raises as
    `encode_arguments`."""
    arguments = zip(*iterables, strict=False)
    for first in itertools.count(step=chunksize):
        chunk = list(itertools.islice(arguments, chunksize))
        if not chunk:
            return
        asked = Asked()
        with asked:
            try:
                payload = function_pickling.dumps(chunk)
            except SparrowError:
                raise
            except Exception as error:
                raise_explained(error, _parts_of_chunk(chunk, first))
        yield asked.task(payload)


def _parts_of_chunk(chunk: list[tuple[Any, ...]], first: int) -> Iterator[tuple[str, Any]]:
    for number, args in enumerate(chunk, first):
        yield from ((f"item {number} of iterables[{index}]", argument) for index, argument in enumerate(args))


# ---- arguments that are results of other tasks -----------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultOf:
    """In an argument of a `CallStage`: the value of a task of an earlier stage, or the list of all its values.

    stage: the name of that stage.
    task: the task's number in it, from 0; None: the values of all its tasks, in order.
    """

    stage: str
    task: int | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self} can only be an argument of a task whose stage comes after {self.stage!r}")


def _no_results(_: ResultOf) -> tuple[type[list[Any]], tuple[()]]:
    """How the results of a stage without tasks are pickled."""
    return list, ()


class _CallPickler(function_pickling.Pickler):
    """Pickles each `ResultOf` as its place among the task's inputs: (first,) or, for a list, (first, count)."""

    dispatch_table: ClassVar[ChainMap[Any, Any]] = ChainMap(
        {ResultOf: _no_results}, function_pickling.Pickler.dispatch_table
    )

    def __init__(self, file: io.BytesIO, task_count: Callable[[str], int]) -> None:
        super().__init__(file, protocol=5)
        self._task_count = task_count
        self._places: dict[ResultOf, tuple[int, ...]] = {}
        self._used = 0
        self._asked: dict[str | TaskResult, int] = {}
        self.inputs: list[InputName | StoredValue | AwaitedFuture] = []

    def persistent_id(self, value: Any) -> tuple[int, ...] | None:
        """For pickle: the place of a `ResultOf`; of all else, and of no results, None."""
        if type(value) is not ResultOf:
            return None
        return self._places.get(value) or self._place(value)

    def place_of(self, value: StoredValue | AwaitedFuture) -> int:
        """As `stored_values.Asking` says."""
        key = value.hash if isinstance(value, StoredValue) else value.task_result
        place = self._asked.setdefault(key, self._used)
        if place == self._used:
            self.inputs.append(value)
            self._used += 1
        return place

    def _place(self, result: ResultOf) -> tuple[int, ...] | None:
        if result.task is not None:
            place: tuple[int, ...] = (self._used,)
            self.inputs.append((result.stage, result.task))
            self._used += 1
        else:
            count = self._task_count(result.stage)
            if not count:
                return None
            place = (self._used, count)
            self.inputs.append(result.stage)
            self._used += count
        self._places[result] = place
        return place


def encode_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], task_count: Callable[[str], int], *, named: str = "args"
) -> bytes | TaskSpec:
    """The task of a call whose arguments may have `ResultOf`s in them, at any depth: its payload, and inputs if it has
    any.

    `task_count` gives the number of a stage's tasks. Raises what it raises, and as `encode_arguments`.
    """
    if not kwargs and all(type(argument) in _PLAIN for argument in args):
        return encode_arguments(args, kwargs)
    file = io.BytesIO()
    pickler = _CallPickler(file, task_count)
    with stored_values.asked_by(pickler):
        try:
            pickler.dump((args, kwargs))
        except SparrowError:
            raise
        except Exception as error:
            raise_explained(error, _parts(named, args, kwargs), replaced=ResultOf)
    if not pickler.inputs:
        return file.getvalue()
    return call_spec(file.getvalue(), pickler.inputs)


class _CallUnpickler(pickle.Unpickler):
    """Puts values in the places of inputs, each unpickled when first needed."""

    def __init__(self, file: io.BytesIO, inputs: Sequence[Data]) -> None:
        super().__init__(file)
        self._inputs = inputs
        self._values: dict[int, Any] = {}

    def persistent_load(self, place: Any) -> Any:
        """For pickle: the reverse of `persistent_id`."""
        first, *counts = place
        if not counts:
            return self._value(first)
        return [self._value(first + offset) for offset in range(counts[0])]

    def _value(self, position: int) -> Any:
        if position not in self._values:
            if position >= len(self._inputs):
                raise ValueError(f"the call refers to input {position} of its task, which has {len(self._inputs)}")
            self._values[position] = stored_values.result_of(self._inputs[position], position)
        return self._values[position]


def decode_call(payload: bytes | mmap.mmap, inputs: Sequence[Data]) -> Any:
    """What `encode_call` or `encode_chunks` made a payload of. Only for workers: unpickling runs any code."""
    if not inputs:
        return pickle.loads(payload)
    with stored_values.given(inputs):
        return _CallUnpickler(io.BytesIO(payload), inputs).load()


# ---- results ---------------------------------------------------------------------------------


def encode_value(value: Any) -> bytes:
    """A result as the worker returns it."""
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=5)
    return function_pickling.dumps(value)
