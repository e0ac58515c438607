"""What a program's functions name: datasets and stages. Public, as what `Dataflow` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, NoReturn, Protocol

import numpy as np

from frontends.dataflow.calls import Calls
from frontends.dataflow.errors import InvalidProgram, NotInRun
from frontends.dataflow.stages import DatasetSpec, StageSpec, called

Array = np.ndarray[Any, Any]


class Program(Protocol):
    """Whose datasets and stages they are: a `Dataflow`, or what stands for it at a worker."""

    _calls: Calls | None
    """What records calls; None outside a run."""
    _thread: int
    """In which the program runs."""

    def _current(self, spec: StageSpec) -> StageSpec:
        """The stage as it runs."""
        ...

    def _call(self, spec: StageSpec, parameters: dict[str, Any]) -> bool | None:
        """Record a call."""
        ...


def defined_again(spec: StageSpec) -> InvalidProgram:
    """Why a stage cannot be called."""
    return InvalidProgram(
        "stage", spec.name, "", f"{called(spec)} was defined again: call the new one, or state name= to have both"
    )


def made_anew(field: str, dataset: str) -> InvalidProgram:
    """Why a dataset cannot be named or returned any more."""
    return InvalidProgram(
        field, dataset, "", f"{field}: dataset {dataset} was made anew: name the new one, or state other names by name="
    )


def called_elsewhere(spec: StageSpec) -> InvalidProgram:
    """Why a stage cannot be called in another thread than the program's."""
    return InvalidProgram(
        "program",
        None,
        "",
        f"stage {spec.name} is called in a thread that the program started; allowed: calls in the program's own "
        "thread, as their order is part of the program",
    )


def returned_stage() -> InvalidProgram:
    """Why a program may not return a stage."""
    return InvalidProgram(
        "program", None, "", "the program returned a stage; allowed: datasets and values. Was it to be called?"
    )


class Dataset:
    """A dataset of a program. Its values are with the workers; `Dataflow.run` returns them as arrays."""

    __array_ufunc__ = None  # numpy's operators leave it to Python to refuse.

    def __init__(self, dataflow: Program, spec: DatasetSpec) -> None:
        self._dataflow, self._spec = dataflow, spec

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def partitions(self) -> int:
        return self._spec.partitions

    def refusal(self) -> str:
        return "it is a dataset; name it in reads or writes, and the function is handed its partition"

    def _no_value(self, *_: object) -> NoReturn:
        raise InvalidProgram(
            self.name,
            None,
            "",
            f"dataset {self.name} has no value in the program itself: stages and signals work on it, programs branch "
            "on signals, and Dataflow.run returns datasets that the program returns as arrays",
        )

    def __bool__(self) -> bool:  # noqa: PLE0304
        self._no_value()

    def __len__(self) -> int:  # noqa: PLE0303
        self._no_value()

    def __iter__(self) -> Iterator[Any]:
        self._no_value()

    def __getitem__(self, _: object) -> Any:
        self._no_value()

    def __array__(self, *_: object, **__: object) -> Array:
        self._no_value()

    # Without these Python's own words would be "unsupported operand", and numpy's of something else.
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __rmatmul__ = _no_value
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _no_value
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _no_value
    __neg__ = __pos__ = __abs__ = __invert__ = __int__ = __float__ = _no_value
    __lt__ = __le__ = __gt__ = __ge__ = __setitem__ = _no_value

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # Python and numpy ask for these.
            raise AttributeError(name)
        raise AttributeError(
            f"dataset {self.name} has no {name}: its values are with the workers; work on them in a stage, use a "
            "signal or return it from the program, which makes an array of it"
        )

    def __repr__(self) -> str:
        return f"<dataset {self._spec}>"


class StageHandle:
    """A stage that a program calls. A signal answers what its function said."""

    def __init__(self, dataflow: Program, spec: StageSpec) -> None:
        self._dataflow, self._spec = dataflow, spec
        self.__name__ = spec.name
        self._calls: Calls | None = None
        """Those of the run that called it last, and the stage as it runs there."""
        self._stage = spec

    @property
    def name(self) -> str:
        return self._spec.name

    def refusal(self) -> str:
        return "it is a stage; programs call stages, functions of stages do not"

    def __call__(self, *arguments: Any, **parameters: Any) -> Any:
        if arguments:
            raise InvalidProgram(
                self.name, None, "", f"stage {self.name} is called with arguments; state parameters by their names"
            )
        dataflow = self._dataflow
        calls = dataflow._calls
        if calls is None:
            raise NotInRun(self._spec.name)
        if get_ident() != dataflow._thread:
            raise called_elsewhere(self._spec)
        if calls is not self._calls:
            self._stage, self._calls = dataflow._current(self._spec), calls
        return calls.call(self._stage, parameters)

    def __bool__(self) -> bool:
        """What is true of any function would have `while going:` run for ever."""
        kind = self._spec.kind
        raise InvalidProgram(
            self.name, None, "", f"{kind} {self.name} is neither true nor false; was it to be called: {self.name}()?"
        )

    def specs(self) -> tuple[StageSpec, ...]:
        """What it calls."""
        return (self._spec,)

    def __repr__(self) -> str:
        return f"<{self._spec.kind} {self.name}>"


class Reduction(StageHandle):
    """Folds partitions into one: a scatter and a gather."""

    def __init__(self, dataflow: Program, scatter: StageSpec, gather: StageSpec) -> None:
        super().__init__(dataflow, gather)
        self._scatter = scatter

    def specs(self) -> tuple[StageSpec, ...]:
        return self._scatter, self._spec

    def __call__(self, *arguments: Any, **parameters: Any) -> Any:
        if arguments or parameters:
            raise InvalidProgram(self.name, None, "", f"reduce {self.name} is called without arguments")
        self._dataflow._call(self._scatter, parameters)
        self._dataflow._call(self._spec, parameters)


def whole_array(array: Any) -> Iterator[tuple[int, Any]]:
    """The scatter of a reduce."""
    yield 0, array


class Fold:
    """The gather of a reduce: from the first partition to the last, so that sums are bitwise the same each time."""

    def __init__(self, name: str, op: Callable[[Any, Any], Any]) -> None:
        self.name, self.op = name, op

    def __call__(self, chunks: list[Any], into: Array) -> None:
        if not chunks:
            raise InvalidProgram("src", None, "", f"reduce {self.name}: all partitions are empty")
        folded = chunks[0]
        for chunk in chunks[1:]:
            folded = self.op(folded, chunk)
            if folded is None:  # An array of floats would take it for nan.
                raise InvalidProgram("op", None, "", f"reduce {self.name}: op returned None; it has to return a value")
        if np.shape(folded) != into.shape:
            raise InvalidProgram(
                "into",
                None,
                "",
                f"reduce {self.name} folds arrays of shape {np.shape(folded)} into one of shape {into.shape}",
            )
        into[...] = folded
