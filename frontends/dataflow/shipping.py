"""Programs on their way to workers: functions by value, datasets and stages by their numbers.

What the program gave its datasets stays in the program's process: workers fetch the partitions that they hold. Each run
ships the definition as it is then, as cells of a notebook may have defined stages anew.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import get_ident
from types import MethodType
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np

from frontends.dataflow.calls import Calls
from frontends.dataflow.captured import CAPTURED_BYTES_MAX, frozen
from frontends.dataflow.errors import InvalidProgram, NotInRun
from frontends.dataflow.handles import (
    Dataset,
    Program,
    Reduction,
    StageHandle,
    called_elsewhere,
    defined_again,
    made_anew,
    returned_stage,
)
from frontends.dataflow.kept_classes import SET_STATE, KeptClasses
from frontends.dataflow.stages import (
    DatasetSpec,
    Definition,
    Given,
    StageKind,
    StageSpec,
    check_datasets_are_there,
)
from sparrow_py import function_pickling

PROTOCOL = 5
SHIPPED_BYTES_MAX = 24 << 20
"""Of a definition, and of a program. Both travel in one message."""
RETURNED_BYTES_MAX = 24 << 20
"""Of what a program returns at a worker, without the datasets in it."""
_DATASET, _STAGE, _REDUCTION, _PROGRAM, _OUTLINE = "dataset", "stage", "reduction", "program", "outline"
_METHOD = "method"


@runtime_checkable
class Owner(Program, Protocol):
    """Whose program is packed."""

    def is_current(self, spec: StageSpec) -> bool:
        """Whether the stage was not defined again."""
        ...


class _Pickler(function_pickling.Pickler):
    """Datasets and stages travel as their numbers."""

    def __init__(self, file: io.BytesIO, owner: Owner | None, *, outlines: bool) -> None:
        super().__init__(file, protocol=PROTOCOL)
        self._owner, self._outlines = owner, outlines
        self.datasets: dict[int, None] = {}
        """Those that were met."""

    def persistent_id(self, value: Any) -> Any:
        """For pickle, which asks of each value first."""
        if isinstance(value, Owner) and value is self._owner:
            return (_PROGRAM,)
        if isinstance(value, MethodType) and value.__self__ is self._owner and self._owner is not None:
            return _METHOD, value.__name__
        if isinstance(value, np.ndarray) and value.nbytes > CAPTURED_BYTES_MAX and self._outlines:
            return _OUTLINE, value.shape, value.dtype.str
        if not isinstance(value, Dataset | StageHandle):
            return None
        if self._owner is None or value._dataflow is not self._owner:
            raise InvalidProgram("program", value, "", f"program: {value!r} belongs to another Dataflow")
        if isinstance(value, Dataset):
            self.datasets[value._spec.id] = None
            return _DATASET, value._spec.id
        if isinstance(value, Reduction):
            return _REDUCTION, value._scatter.id, value._spec.id, self._owner.is_current(value._spec)
        return _STAGE, value._spec.id, self._owner.is_current(value._spec)


def _pickled(value: Any, owner: Owner | None, *, outlines: bool = False) -> tuple[bytes, tuple[int, ...]]:
    """The value as bytes, and the datasets in it; large arrays as outlines, if so stated."""
    file = io.BytesIO()
    pickler = _Pickler(file, owner, outlines=outlines)
    pickler.dump(value)
    return file.getvalue(), tuple(pickler.datasets)


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, handle_of: Callable[..., Any], kept: KeptClasses | None = None) -> None:
        super().__init__(io.BytesIO(data))
        self._handle_of, self._kept = handle_of, kept

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return self._kept.set_state if found is SET_STATE and self._kept is not None else found

    def persistent_load(self, number: Any) -> Any:
        return self._handle_of(*number)


# ---- definitions ---------------------------------------------------------------------------------------


def pack_definition(definition: Definition) -> bytes:
    """Datasets and stages. `InvalidProgram` names the stage or dataset whose function cannot be pickled."""
    datasets = [_without_values(spec, definition) for spec in definition.datasets]
    shipped = definition.as_it_is(datasets)
    try:
        data, _ = _pickled(shipped, None)
    except Exception:
        named: tuple[DatasetSpec | StageSpec, ...] = (*datasets, *definition.stages)
        for one in named:
            try:
                _pickled(one, None)
            except Exception as error:
                raise InvalidProgram(
                    one.name, None, "", f"the function of {one.name} cannot be sent to workers: {error}"
                ) from error
        raise
    return _checked("definition", data)


def pack_outline(definition: Definition) -> bytes:
    """Datasets and stages without functions and values: what a controller that commands workers has to know."""
    datasets = [replace(spec, source=Given(())) for spec in definition.datasets]
    stages = [replace(stage, function=None, watched=()) for stage in definition.stages]
    return pickle.dumps(definition.as_it_is(datasets, stages), PROTOCOL)


def _without_values(spec: DatasetSpec, definition: Definition) -> DatasetSpec:
    is_wanted = not isinstance(spec.source, Given) and spec.id not in definition.replaced
    return spec if is_wanted else replace(spec, source=Given(()))


def _checked(field: str, data: bytes) -> bytes:
    if len(data) > SHIPPED_BYTES_MAX:
        raise InvalidProgram(
            field,
            None,
            "",
            f"the {field} is {len(data):,} bytes as it is sent to workers; allowed: {SHIPPED_BYTES_MAX:,}",
        )
    return data


def unpack_definition(data: bytes) -> Definition:
    definition: Definition = pickle.loads(data)
    return definition


# ---- programs ------------------------------------------------------------------------------------------


def pack_program(program: Callable[[], Any], owner: Owner) -> bytes:
    """The program's function, and functions of its module that it refers to, with what they capture as it is now."""
    try:
        data, _ = _pickled(frozen(program, take=_as_it_is), owner, outlines=True)
    except InvalidProgram:
        raise
    except Exception as error:
        raise InvalidProgram("program", None, "", f"the program cannot be sent to workers: {error}") from error
    return _checked("program", data)


def _as_it_is(value: Any) -> Any:
    return value


class ArrayOutline:
    """What stands at workers for a large array that the program's function names: its shape, not its contents."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.ndim, self.size = len(shape), math.prod(shape)
        self.nbytes = self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python and numpy ask for these.
            raise AttributeError(name)
        self._no_contents()

    def __array__(self, *_: object, **__: object) -> NoReturn:
        self._no_contents()

    def __getitem__(self, _: object) -> NoReturn:
        self._no_contents()

    def _no_contents(self) -> NoReturn:
        raise InvalidProgram(
            "program",
            None,
            "",
            f"the program uses contents of an array of shape {self.shape}, which it captured; at most "
            f"{CAPTURED_BYTES_MAX} bytes travel with it, of larger arrays only shape and dtype: make it a dataset",
        )


class ProgramHere:
    """What stands for the Dataflow in a program at a worker."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.partitions = max(spec.partitions for spec in definition.datasets)
        self._calls: Calls | None = None
        self._thread = 0
        """In which the program runs."""

    def handle(self, kind: str, *numbers: Any) -> Any:
        """The dataset or stage that a number stands for."""
        if kind == _PROGRAM:
            return self
        if kind == _METHOD:
            return getattr(self, numbers[0])
        if kind == _OUTLINE:
            return ArrayOutline(*numbers)
        if kind == _DATASET:
            return Dataset(self, self.definition.datasets[numbers[0]])
        stages = self.definition.stages
        specs = [stages[number] if numbers[-1] else replace(stages[number]) for number in numbers[:-1]]
        return Reduction(self, *specs) if kind == _REDUCTION else StageHandle(self, specs[0])

    def is_current(self, spec: StageSpec) -> bool:
        return self.definition.stages[spec.id] is spec

    def _current(self, spec: StageSpec) -> StageSpec:
        if not self.is_current(spec):
            raise defined_again(spec)
        check_datasets_are_there(self.definition, spec)
        return spec

    def _call(self, spec: StageSpec, parameters: dict[str, Any]) -> bool | None:
        if self._calls is None:
            raise NotInRun(spec.name)
        if get_ident() != self._thread:
            raise called_elsewhere(spec)
        return self._calls.call(self._current(spec), parameters)

    def barrier(self) -> None:
        """Wait until all stages called before have run."""
        self._call(next(stage for stage in self.definition.stages if stage.kind is StageKind.BARRIER), {})

    def run(self, program: object) -> None:
        raise InvalidProgram("program", None, "", "run was called within a run; call stages instead")

    def calling(self, program: Callable[[], Any], calls: Calls) -> Any:
        """What the program returns if its stages are called by `calls`."""
        self._calls, self._thread = calls, get_ident()
        try:
            return calls.play(program)
        finally:
            self._calls = None

    def pack_returned(self, returned: Any) -> tuple[bytes, tuple[int, ...]]:
        """What the program returned, and the datasets in it."""
        try:
            packed, datasets = _pickled(returned, self)
        except Exception as error:
            raise InvalidProgram(
                "program", None, "", f"what the program returned cannot be pickled: {error}"
            ) from error
        if len(packed) > RETURNED_BYTES_MAX:
            raise InvalidProgram(
                "returned",
                None,
                "",
                f"returned: what the program returned is {len(packed):,} bytes, pickled; allowed: "
                f"{RETURNED_BYTES_MAX:,}, datasets not counted: keep in a dataset what is large",
            )
        for dataset in datasets:
            if dataset in self.definition.replaced:
                raise made_anew("program", self.definition.replaced[dataset])
        return packed, datasets


def unpack_program(data: bytes, here: ProgramHere, kept: KeptClasses | None = None) -> Callable[[], Any]:
    """The program's function. `kept`: for a process whose own classes must stay as they are."""
    program: Callable[[], Any] = _Unpickler(data, here.handle, kept).load()
    return program


def unpack_returned(data: bytes, datasets: Sequence[Dataset]) -> Any:
    """What a program returned, with the program's own datasets in it."""

    def handle(kind: str, *numbers: Any) -> Any:
        if kind in (_PROGRAM, _METHOD):
            raise InvalidProgram("program", None, "", "the program returned its Dataflow; allowed: datasets and values")
        if kind != _DATASET:
            raise returned_stage()
        return datasets[numbers[0]]

    return _Unpickler(data, handle).load()
