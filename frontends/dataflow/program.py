"""Programs that loop over partitioned arrays: datasets, stages, and how they are run. Public."""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from frontends.dataflow.calls import Block, Calls
from frontends.dataflow.captured import captured_state, check_captured, frozen, is_same_state, watched
from frontends.dataflow.compiled import is_wanted
from frontends.dataflow.errors import InvalidProgram, NotInRun
from frontends.dataflow.handles import (
    Dataset,
    Fold,
    Reduction,
    StageHandle,
    called_elsewhere,
    defined_again,
    made_anew,
    returned_stage,
    whole_array,
)
from frontends.dataflow.inline import InlineRunner
from frontends.dataflow.run_settings import PARTITIONS_MAX, PLANES, WORKERS_MAX, in_force
from frontends.dataflow.stages import (
    HOME,
    DatasetKind,
    DatasetSpec,
    Definition,
    Filled,
    Given,
    Loaded,
    StageKind,
    StageSpec,
    check_datasets_are_there,
    check_loader,
    signature_of,
    split_datasets,
)
from frontends.dataflow.values import checked_array, copied, put_together
from frontends.dataflow.variables import Variables
from sparrow_py.job import LEASE_S_MIN

if TYPE_CHECKING:
    from frontends.dataflow.cluster_runner import ClusterRunner

TRANSPORTS = ("auto", "unix", "tcp")
LEASE_S = 2.0
START_TIMEOUT_S = 30.0
SNAPSHOT_EVERY_S = 60.0
SECONDS_MIN, SECONDS_MAX = 0.001, 1e6


def _whole_number(field: str, value: Any, most: int, most_is: str = "") -> int:
    """The number, numpy's too; `most_is` says of what the most is one."""
    number = _index(value)
    if number is None or not 1 <= number <= most:
        raise InvalidProgram(field, value, f"a whole number from 1 to {most:,}{most_is}")
    return number


def _index(value: Any) -> int | None:
    """The whole number that this is; None if it is none."""
    if isinstance(value, bool | np.bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _seconds(field: str, value: object, least: float = SECONDS_MIN) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= SECONDS_MAX:
        raise InvalidProgram(field, value, f"a number of seconds from {least:g} to {SECONDS_MAX:,.0f}")
    return float(value)


class Dataflow:
    """A program's datasets and stages, and where it runs.

    Parameters
    ----------
    cluster: a `Client`, a `LocalCluster`, or addresses of schedulers; None as for `Client`. Plane `inline` needs none.
    plane: who decides which task runs where. `inline`, the default: this process runs all, one after the other. On the
        others workers do, tasks of the app `dataflow`. `local`: they spawn their tasks themselves. `templates`: the
        program runs here, and a controller tells each worker which block to execute. `central`: it sends every task.
    workers: how many are wanted (1). A run begins with those that have come within 2 s, others join at a signal.
    min_workers: a run begins with no fewer.
    start_timeout_s: if fewer have come by then, all give their slots back, and are asked for again.
    partitions, partitions_per_worker: datasets have `partitions`, or `workers` times `partitions_per_worker`.
    lease_s: nodes charge workers so much slot time at a time, and may have them yield at the end of it.
    snapshot_dir: where this process keeps snapshots, one each `snapshot_every_s` (60) at a signal. Without it there is
        none but when all workers have to yield.
    transport: how processes of the program are linked: "auto", "unix" or "tcp".
    allow_plaintext: whether arrays may travel between machines in plain text though the cluster's links are encrypted.
    advertise: the host at which workers dial this process. Default: that of the interface that leads to the schedulers.
    progress: show on a terminal how the program does, and say how many partitions it has; by default True.

    In a file that `sparrow dataflow run` runs, `plane`, `workers`, `partitions`, `snapshot_dir`, `progress` and
    `cluster` are by default what the command says. `SettingsConflict` if one is stated, and the command states another.
    """

    def __init__(
        self,
        cluster: Any = None,
        *,
        workers: int | None = None,
        partitions: int | None = None,
        partitions_per_worker: int = 4,
        plane: str | None = None,
        progress: bool | None = None,
        min_workers: int = 1,
        start_timeout_s: float = START_TIMEOUT_S,
        lease_s: float = LEASE_S,
        snapshot_dir: str | Path | None = None,
        snapshot_every_s: float | None = None,
        transport: str = "auto",
        allow_plaintext: bool = False,
        advertise: str | None = None,
    ) -> None:
        settings = in_force()
        plane = settings.chosen("plane", plane, "inline")
        if plane not in PLANES:
            raise InvalidProgram("plane", plane, ", ".join(PLANES))
        self.plane = plane
        self.cluster = cluster
        workers = self.workers = _whole_number("workers", settings.chosen("workers", workers, 1), WORKERS_MAX)
        progress = settings.chosen("progress", progress, True)
        partitions = settings.chosen("partitions", partitions, None)
        snapshot_dir = settings.chosen("snapshot_dir", snapshot_dir, None)
        min_workers = _whole_number("min_workers", min_workers, workers, ", the number of workers")
        if transport not in TRANSPORTS:
            raise InvalidProgram("transport", transport, ", ".join(TRANSPORTS))
        if snapshot_dir is None and snapshot_every_s is not None:
            raise InvalidProgram("snapshot_every_s", snapshot_every_s, "None without snapshot_dir")
        if snapshot_every_s is None:
            snapshot_every_s = SNAPSHOT_EVERY_S
        every_s = None if snapshot_dir is None else _seconds("snapshot_every_s", snapshot_every_s)
        _seconds("start_timeout_s", start_timeout_s)
        _seconds("lease_s", lease_s, LEASE_S_MIN)
        partitions_per_worker = _whole_number("partitions_per_worker", partitions_per_worker, PARTITIONS_MAX)
        if partitions is None:
            partitions = workers * partitions_per_worker
            if progress:
                print(
                    f"dataflow: {partitions} partitions ({workers} × {partitions_per_worker} a worker)", file=sys.stderr
                )
        self.partitions = _whole_number("partitions", partitions, PARTITIONS_MAX)
        self._definition = Definition()
        self._runner = InlineRunner(self._definition)
        self._cluster_runner: ClusterRunner | None = None
        """Of planes with workers."""
        self._datasets: list[Dataset] = [Dataset(self, self._definition.datasets[HOME])]
        self._stated: dict[str, list[Dataset]] = {}
        """Datasets by the names that the user stated for them: a tuple has one name, and each of its datasets one."""
        self._variables = Variables()
        self._declared: dict[int, StageSpec] = {}
        """Each stage as it was declared last."""
        self._frozen: dict[int, Frozen] = {}
        """Each stage as it runs."""
        self._loads_frozen = 0
        """Datasets whose functions, if they have some, are as they were at their first run."""
        self._calls: Calls | None = None
        self._thread = 0
        """In which the program runs."""
        self._running = False
        self._closed = False
        self._barrier: StageSpec | None = None
        flow = None if settings.timeline is None else settings.timeline.flow(self._definition, plane, workers)
        if plane != "inline":
            from frontends.dataflow.cluster_runner import ClusterRunner
            from frontends.dataflow.snapshot_files import usable_directory

            self.cluster = cluster = settings.cluster_for(cluster, workers)
            self._cluster_runner = ClusterRunner(
                cluster, plane=plane, workers=workers, min_workers=min_workers, start_timeout_s=start_timeout_s,
                lease_s=lease_s, snapshot_dir=None if snapshot_dir is None else usable_directory(snapshot_dir),
                snapshot_every_s=every_s, transport=transport, allow_plaintext=allow_plaintext, advertise=advertise,
                progress=progress, flow=flow,
            )  # fmt: skip
        elif flow is not None:
            self._runner.recorder = flow.recorder()
        settings.dataflows += 1

    def refusal(self) -> str:
        return "it is the Dataflow; functions of stages work on the arrays that they are handed"

    def __enter__(self) -> Dataflow:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget all data, and end all workers."""
        self._closed = True
        self._runner.flush()
        self._runner = InlineRunner(self._definition)
        if self._cluster_runner is not None:
            self._cluster_runner.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidProgram("Dataflow", None, "", "this Dataflow is closed: its data are gone")

    # ---- datasets ---------------------------------------------------------------------------------

    def _add(
        self, name: str | None, kind: DatasetKind, count: int, source: Given | Filled | Loaded, *, unnamed: str = ""
    ) -> Dataset:
        """A dataset in place of those that have its name; without a name it is numbered, as `unnamed` or its kind."""
        (made,) = self._add_all(name, kind, count, [source], [name], unnamed)
        return made

    def _add_all(
        self,
        stated: str | None,
        kind: DatasetKind,
        count: int,
        sources: Sequence[Given | Filled | Loaded],
        names: Sequence[str | None],
        unnamed: str = "",
    ) -> list[Dataset]:
        """Datasets of one call, whose name is `stated`."""
        self._check_open()
        if self._running:
            raise InvalidProgram("program", None, "", "a dataset was declared within a run: declare it before")
        _check_name(stated)
        self._see_variables()
        made: list[Dataset] = []
        for name, source in zip(names, sources, strict=True):
            named = name or f"{unnamed or kind}-{len(self._definition.datasets)}"
            made.append(Dataset(self, self._definition.add_dataset(named, kind, count, source)))
            self._datasets.append(made[-1])
            self._variables.add(made[-1], is_named=bool(stated))
        if stated:
            self._take_place(stated, made)
        return made

    def _take_place(self, stated: str, made: Sequence[Dataset]) -> None:
        """Datasets that have the name of the call, or of one of these, are replaced."""
        names = [stated, *(dataset.name for dataset in made if dataset.name != stated)]
        for name in names:
            for dataset in self._stated.get(name, ()):
                self._replace(dataset, dataset.name)
            self._stated[name] = [dataset for dataset in made if name in (stated, dataset.name)]

    def _replace(self, dataset: Dataset, called: str) -> None:
        """Another dataset was made in place of this one: nothing may use it any more, and its values go."""
        number = dataset._spec.id
        if number in self._definition.replaced:
            return
        self._definition.replace_dataset(number, called)
        self._variables.forget(dataset)
        if self._cluster_runner is None:  # Otherwise runs before may have to be run again.
            self._definition.release(number)
            dataset._spec = self._definition.datasets[number]

    def _see_variables(self, *, before_run: bool = False) -> None:
        """Datasets and stages whose variable has another one, that another cell has made, are replaced."""
        for handle, variable in self._variables.replaced(before_run=before_run):
            if isinstance(handle, Dataset):
                is_other = variable != handle.name
                self._replace(handle, f"{handle.name} (variable {variable})" if is_other else variable)
            else:
                for spec in handle.specs():
                    if self._declared.get(spec.id) is spec:
                        del self._declared[spec.id]
                        self._definition.gone[spec.id] = None

    def _count(self, partitions: int | None, like: Dataset | None) -> int:
        if partitions is not None and like is not None:
            raise InvalidProgram("like", like, "", "partitions and like are both stated; allowed: one of them")
        if like is not None:
            (number,) = self._ids("like", [like])
            if self._definition.datasets[number].kind is DatasetKind.REPLICATED:
                raise InvalidProgram("like", like, "a partitioned or single dataset")
            return like.partitions
        return self.partitions if partitions is None else _whole_number("partitions", partitions, PARTITIONS_MAX)

    def partition(
        self, arrays: Any, *, partitions: int | None = None, like: Dataset | None = None, name: str | None = None
    ) -> Any:
        """The array cut into partitions by rows; of a tuple of arrays a tuple of datasets whose rows are aligned."""
        _check_name(name)
        count = self._count(partitions, like)
        many = isinstance(arrays, tuple)
        given = arrays if many else (arrays,)
        if not given or not all(isinstance(array, np.ndarray) and array.ndim for array in given):
            raise InvalidProgram("arrays", type(arrays).__name__, "an array with rows, or a tuple of such arrays")
        rows = [len(array) for array in given]
        if len(set(rows)) > 1:
            raise InvalidProgram("arrays", rows, "", f"arrays have {rows} rows; arrays of one tuple have equally many")
        sources = [Given(tuple(np.array_split(checked_array("arrays", array), count))) for array in given]
        names = [f"{name}-{number}" if name and many else name for number in range(len(given))]
        datasets = self._add_all(name, DatasetKind.PARTITIONED, count, sources, names)
        return tuple(datasets) if many else datasets[0]

    def single(self, value: Any, *, name: str | None = None) -> Dataset:
        """A dataset of one partition, an array or a number."""
        return self._add(name, DatasetKind.SINGLE, 1, Given((checked_array("value", value),)))

    def replicate(self, value: Any, *, name: str | None = None) -> Dataset:
        """A value of which each worker that reads it has a copy."""
        return self._add(name, DatasetKind.REPLICATED, 1, Given((checked_array("value", value),)))

    def empty(
        self,
        shape: Any,
        *,
        like: Dataset | None = None,
        fill: Any = 0.0,
        partitions: int | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Arrays full of `fill`. A shape (a number or a tuple) is that of each partition; a list has one for each."""
        count = self._count(partitions, like)
        if isinstance(shape, np.ndarray):
            shape = shape.tolist()
        shapes = shape if isinstance(shape, list) else [shape] * count
        if len(shapes) != count:
            raise InvalidProgram(
                "shape",
                None,
                "",
                f"shape has {len(shapes)} shapes for {count} partitions; a tuple is one shape for all",
            )
        filler = np.asarray(fill)
        if filler.ndim or filler.dtype.hasobject:
            raise InvalidProgram("fill", fill, "a number")
        source = Filled(tuple(map(_shape, shapes)), filler.dtype.str, filler[()])
        for one in set(source.shapes):
            try:
                np.broadcast_to(filler, one)
            except ValueError as error:
                raise InvalidProgram("shape", one, f"what an array can have: {error}") from None
        return self._add(name, DatasetKind.PARTITIONED, count, source)

    def load(
        self,
        function: Callable[[int], Any],
        *,
        partitions: int | None = None,
        like: Dataset | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Partitions that `function(index)` makes where they are held: arrays, named tuples of arrays, any objects."""
        _check_name(name)
        count = self._count(partitions, like)
        unnamed = str(getattr(function, "__name__", "load"))
        named = name or f"{unnamed}-{len(self._definition.datasets)}"
        check_loader(named, function)
        check_captured(named, function, kind="load")
        return self._add(name, DatasetKind.PARTITIONED, count, Loaded(function), unnamed=unnamed)

    def objects(self, values: Sequence[Any], *, name: str | None = None) -> Dataset:
        """A Python object a partition. Stages that write it change it in place."""
        if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
            raise InvalidProgram("values", type(values).__name__, "a list with an object for each partition")
        count = _whole_number("partitions", len(values), PARTITIONS_MAX)
        return self._add(name, DatasetKind.PARTITIONED, count, Given(tuple(map(_copied_object, range(count), values))))

    # ---- stages -----------------------------------------------------------------------------------

    def _ids(self, field: str, datasets: Iterable[Any]) -> tuple[int, ...]:
        if isinstance(datasets, Dataset):
            raise InvalidProgram(field, datasets, "a list of datasets")
        self._see_variables()
        try:
            datasets = tuple(datasets)
        except TypeError:
            raise InvalidProgram(field, datasets, "a list of datasets") from None
        for dataset in datasets:
            if not isinstance(dataset, Dataset):
                raise InvalidProgram(
                    field, None, "", f"{field} has a {type(dataset).__name__}; allowed: datasets of this Dataflow"
                )
            if dataset._dataflow is not self:
                raise InvalidProgram(field, dataset, "", f"{field}: {dataset!r} belongs to another Dataflow")
            if dataset._spec.id in self._definition.replaced:
                raise made_anew(field, self._definition.replaced[dataset._spec.id])
        return tuple(dataset._spec.id for dataset in datasets)

    def _define(
        self,
        kind: StageKind,
        function: Any,
        name: str | None,
        reads: Iterable[Dataset],
        writes: Iterable[Dataset],
        *,
        to: int | None = None,
        scatter: StageSpec | None = None,
        reduces: str = "",
        is_compiled: bool = False,
    ) -> StageSpec:
        """`reduces`: the name of the reduce that the stage is a part of; its function is ours."""
        self._check_open()
        if self._running:
            raise InvalidProgram("program", None, "", "a stage was declared within a run: declare it before")
        _check_name(name)
        name = name or self._name_of(function)
        read, written = self._ids("reads", reads), self._ids("writes", writes)
        also = (scatter.to,) if scatter is not None and scatter.to is not None else ()
        # What is named is touched once, so a destination that is also read or written is no second time.
        partitions, touches, copies_read, copies_written = split_datasets(self._definition, name, read, written, also)
        parameters: set[str] = set()
        required: set[str] = set()
        if not reduces:
            handed = [self._definition.datasets[dataset].name for dataset in (*read, *written)]
            positional = ["chunks", *handed] if kind is StageKind.GATHER else handed
            parameters, required = signature_of(name, function, positional)
            check_captured(name, function)
        spec = StageSpec(
            -1, name, kind, function, read, written, partitions, touches, copies_read, copies_written,
            frozenset(parameters), frozenset(required), to, None if scatter is None else scatter.id,
            is_compiled=is_compiled, reduces=reduces,
        )  # fmt: skip
        spec = self._definition.add_stage(spec)
        self._declared[spec.id] = spec
        return spec

    def _handle(self, spec: StageSpec, name: str | None) -> StageHandle:
        """What programs call a stage by, of which `name` was stated."""
        handle = StageHandle(self, spec)
        self._variables.add(handle, is_named=bool(name) or _has_own_name(spec.function))
        return handle

    def _name_of(self, function: Any) -> str:
        """A stage's name, if none is stated. Lambdas and objects have none of their own, so these are numbered."""
        own = str(getattr(function, "__name__", type(function).__name__))
        return own if _has_own_name(function) else f"{own}-{len(self._definition.stages)}"

    def stage(
        self,
        *function: Any,
        reads: Iterable[Dataset] = (),
        writes: Iterable[Dataset] = (),
        compiled: bool = False,
        name: str | None = None,
    ) -> Callable[[Callable[..., Any]], StageHandle]:
        """A function of one partition of each of these datasets, reads first. It writes its arrays in place.

        If it is `compiled`, numba makes machine code of it, and consecutive tasks of a partition run as one.
        """
        if function:
            raise InvalidProgram(
                "stage", None, "", "a stage states its datasets: write @df.stage(reads=[...], writes=[...]) in front "
                "of the function"
            )  # fmt: skip
        is_compiled = is_wanted(compiled)

        def declare(function: Callable[..., Any]) -> StageHandle:
            if is_compiled and not isinstance(function, FunctionType):
                raise InvalidProgram("function", function, "a function that is written in Python, as it is compiled")
            spec = self._define(StageKind.COMPUTE, function, name, reads, writes, is_compiled=is_compiled)
            return self._handle(spec, name)

        return declare

    def scatter(
        self, *, reads: Iterable[Dataset], to: Dataset, name: str | None = None
    ) -> Callable[[Callable[..., Any]], StageHandle]:
        """A generator of pairs (index of a partition of `to`, chunk), which a gather then takes."""
        (destination,) = self._ids("to", [to])
        if self._definition.datasets[destination].kind is DatasetKind.REPLICATED:
            raise InvalidProgram("to", to.name, "a partitioned or single dataset, whose partitions chunks are for")

        def declare(function: Callable[..., Any]) -> StageHandle:
            return self._handle(self._define(StageKind.SCATTER, function, name, reads, (), to=destination), name)

        return declare

    def gather(
        self,
        scatter: StageHandle,
        *,
        reads: Iterable[Dataset] = (),
        writes: Iterable[Dataset] = (),
        name: str | None = None,
    ) -> Callable[[Callable[..., Any]], StageHandle]:
        """A function of the chunks for a partition, in the order of their sources, then of reads and writes."""
        if not isinstance(scatter, StageHandle) or scatter._spec.kind is not StageKind.SCATTER:
            raise InvalidProgram("scatter", scatter, "a stage that Dataflow.scatter made")
        if scatter._dataflow is not self:
            raise InvalidProgram("scatter", scatter, "", f"scatter: {scatter!r} belongs to another Dataflow")

        def declare(function: Callable[..., Any]) -> StageHandle:
            self._see_variables()
            if not self.is_current(scatter._spec):
                raise defined_again(scatter._spec)
            check_datasets_are_there(self._definition, scatter._spec)
            spec = self._define(StageKind.GATHER, function, name, reads, writes, scatter=scatter._spec)
            return self._handle(spec, name)

        return declare

    def reduce(
        self, src: Dataset, *, into: Dataset, op: Callable[[Any, Any], Any] = np.add, name: str | None = None
    ) -> StageHandle:
        """Folds the partitions of `src` by `op`, first to last, into a single or replicated dataset."""
        _check_name(name)
        (source,), (target,) = self._ids("src", [src]), self._ids("into", [into])
        if not callable(op):
            raise InvalidProgram("op", op, "a function of two arrays, such as np.add")
        if into.partitions != 1:
            raise InvalidProgram(
                "into", into.name, "", f"into: {into!r} has {into.partitions} partitions; allowed: single or replicated"
            )
        if self._definition.datasets[source].kind is DatasetKind.REPLICATED:
            raise InvalidProgram("src", src.name, "", f"src: {src!r} has one value; allowed: a partitioned dataset")
        stated, name = name, name or f"reduce-{src.name}-into-{into.name}-{len(self._definition.stages)}"
        _check_shapes(name, self._definition.datasets[source], self._definition.datasets[target])
        check_captured(name, op)
        is_copy = self._definition.datasets[target].kind is DatasetKind.REPLICATED
        scatter = self._define(
            StageKind.SCATTER, whole_array, f"{name}-scatter", [src], (), to=HOME if is_copy else target, reduces=name
        )
        gather = self._define(StageKind.GATHER, Fold(name, op), name, (), [into], scatter=scatter, reduces=name)
        reduction = Reduction(self, scatter, gather)
        self._variables.add(reduction, is_named=bool(stated))
        return reduction

    def signal(self, *, on: Dataset, name: str | None = None) -> Callable[[Callable[..., Any]], StageHandle]:
        """A function of a single dataset that says yes or no; programs branch on signals alone."""
        self._ids("on", [on])
        if on.partitions != 1 or on._spec.kind is DatasetKind.REPLICATED:
            raise InvalidProgram(
                "on", on.name, "", f"on: {on!r} is not a dataset of one partition; reduce it into a single one first"
            )

        def declare(function: Callable[..., Any]) -> StageHandle:
            return self._handle(self._define(StageKind.SIGNAL, function, name, [on], ()), name)

        return declare

    # ---- runs -------------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Wait, within a program, until all stages called before have run."""
        if self._barrier is None:
            if not self._running:
                raise NotInRun("barrier")
            self._declare_barrier()
        assert self._barrier is not None
        self._call(self._barrier, {})

    def _declare_barrier(self) -> None:
        """Workers have to know of it before they call a program."""
        if self._barrier is None:
            self._barrier = self._definition.add_stage(
                StageSpec(-1, "(barrier)", StageKind.BARRIER, None, (), (), 1, (HOME,))
            )
            self._declared[self._barrier.id] = self._barrier
            self._frozen[self._barrier.id] = Frozen(self._barrier, self._barrier, ())

    def run(self, program: Callable[[], Any]) -> Any:
        """Run a function that calls stages; what it returns, with arrays in place of datasets.

        A program's data stay: a second run goes on with them.
        """
        self._check_open()
        if not callable(program):
            raise InvalidProgram("program", program, "a function without arguments that calls stages")
        _check_takes_nothing(program)
        if self._running:
            raise InvalidProgram("program", None, "", "run was called within a run; call stages instead")
        self._see_variables(before_run=True)
        if self._cluster_runner is None:
            self._freeze()
            self._runner.load()
            return self._arrays(self._called(program, Calls(self._run_block)))
        self._declare_barrier()
        self._freeze()
        self._running = True
        try:
            returned = self._cluster_runner.run(self, self._definition, self._datasets, program)
        finally:
            self._running = False
        return self._arrays(returned)

    def _called(self, program: Callable[[], Any], calls: Calls) -> Any:
        """What the program returns if its stages are called by `calls`."""
        self._calls, self._running, self._thread = calls, True, get_ident()
        try:
            return calls.play(program)
        finally:
            self._calls, self._running = None, False
            self._runner.flush()

    def _freeze(self) -> None:
        """Take what stages captured as it is now, and what loads did that were declared since the last run."""
        self._freeze_loads()
        for spec in self._declared.values():
            own = spec.function.op if isinstance(spec.function, Fold) else spec.function
            state, before = captured_state(own), self._frozen.get(spec.id)
            if before is not None and before.declared is spec:
                if is_same_state(before.state, state):
                    continue
                self._definition.version += 1
            check_captured(spec.name, own)
            mine = frozen(own)
            function = Fold(spec.function.name, mine) if isinstance(spec.function, Fold) else mine
            made = replace(spec, function=function, watched=watched(spec.name, mine))
            self._definition.stages[spec.id] = made
            self._frozen[spec.id] = Frozen(spec, made, state)

    def _freeze_loads(self) -> None:
        datasets = self._definition.datasets
        for spec in datasets[self._loads_frozen :]:
            if isinstance(spec.source, Loaded):
                check_captured(spec.name, spec.source.function, kind="load")
                datasets[spec.id] = replace(spec, source=Loaded(frozen(spec.source.function)))
        self._loads_frozen = len(datasets)

    def _current(self, spec: StageSpec) -> StageSpec:
        """The stage as it runs."""
        if not self.is_current(spec):
            raise defined_again(spec)
        check_datasets_are_there(self._definition, spec)
        return self._frozen[spec.id].made

    def is_current(self, spec: StageSpec) -> bool:
        """Whether the stage was not defined again."""
        return self._declared.get(spec.id) is spec

    def _call(self, spec: StageSpec, parameters: dict[str, Any]) -> bool | None:
        if self._calls is None:
            raise NotInRun(spec.name)
        if get_ident() != self._thread:
            raise called_elsewhere(spec)
        return self._calls.call(self._current(spec), parameters)

    def _run_block(self, block: Block) -> bool:
        """Run a block; stages do not call stages meanwhile."""
        calls, self._calls = self._calls, None
        try:
            return self._runner.run_block(block)
        finally:
            self._calls = calls

    def _arrays(self, returned: Any) -> Any:
        """What a program returned, with arrays in place of datasets."""
        if isinstance(returned, Dataset):
            self._ids("program", [returned])  # It is of this Dataflow, and was not made anew.
            values = (self._cluster_runner or self._runner).value(returned._spec.id)
            return put_together(values) if returned._spec.kind is DatasetKind.PARTITIONED else copied(values[0])
        if isinstance(returned, StageHandle):
            raise returned_stage()
        if isinstance(returned, tuple | list):
            parts = [self._arrays(part) for part in returned]
            return type(returned)(*parts) if hasattr(returned, "_fields") else type(returned)(parts)
        if isinstance(returned, dict):
            return {key: self._arrays(value) for key, value in returned.items()}
        return returned


class Frozen(NamedTuple):
    """A stage as it runs."""

    declared: StageSpec
    made: StageSpec
    state: tuple[Any, ...]
    """What it had captured then."""


def _check_name(name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise InvalidProgram("name", name, "a string, or None")


def _has_own_name(function: Any) -> bool:
    return getattr(function, "__name__", "<lambda>") != "<lambda>"


def _check_takes_nothing(program: Callable[..., Any]) -> None:
    try:
        inspect.signature(program).bind()
    except TypeError as error:
        raise InvalidProgram(
            "program",
            None,
            "",
            f"program: a function without arguments is allowed, and this one cannot be called so: {error}; what it "
            "needs it may capture",
        ) from None
    except ValueError:  # Some functions in C do not say what they take.
        return


def _copied_object(index: int, value: Any) -> Any:
    """A copy of an object of a partition; refused, by its index, if there can be none."""
    try:
        return copied(value)
    except Exception as error:
        raise InvalidProgram(
            "values",
            None,
            "",
            f"values: object {index}, a {type(value).__name__}, cannot be copied ({error}); what is open or locked is "
            "made where the partition is held, by Dataflow.load",
        ) from error


def _shape(shape: Any) -> tuple[int, ...]:
    """A shape as numpy has it."""
    sizes = tuple(map(_index, shape if isinstance(shape, tuple) else (shape,)))
    if any(size is None or size < 0 for size in sizes):
        raise InvalidProgram("shape", shape, "a number of rows, or a tuple of numbers; a list of these a partition")
    return sizes  # type: ignore[return-value]  # None of them is None.


def _shapes_of(spec: DatasetSpec) -> set[tuple[int, ...]] | None:
    """Shapes of the partitions, if they are known before a run."""
    match spec.source:
        case Given(values):
            return {np.shape(value) for value in values} if isinstance(values[0], np.ndarray) else None
        case Filled(shapes=shapes):
            return set(shapes)
        case _:
            return None


def _check_shapes(name: str, source: DatasetSpec, target: DatasetSpec) -> None:
    sources, targets = _shapes_of(source), _shapes_of(target)
    if sources and targets and sources != targets:
        raise InvalidProgram(
            "into",
            target.name,
            "",
            f"reduce {name}: partitions of {source.name} have shape {', '.join(map(str, sorted(sources)))}, "
            f"{target.name} has {', '.join(map(str, targets))}; they have to be the same",
        )
