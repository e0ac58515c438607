"""What a job costs on an engine (§3.5.1):

    start + in / PULL + in / LOAD + the sum over its operators of in_i / PROCESS + out / PUSH

in seconds: `in` are the bytes of what the job reads, each relation and table once however many of its operators read it
(§3.4.3), in_i those that operator i reads, `out` those of the relations that the job hands on. The start is a cold one
unless the engine's host process is warm, or an earlier job of the plan has started it. A job that an engine cannot
express has no cost there. A relation that each mapper of an engine reads whole for a join (`jobs.map_joins`) is read as
often as there are mappers, which are taken to be as many as the CPUs that the engine keeps busy.

An earlier run of the very same job on a warm engine stands in the place of all, so that a cold start adds what it takes
longer than a warm one. Other jobs of the workflow on this engine are taken to be as much slower or faster than by its
rates as those that have run were. An engine that has run none of them may be slower, too: part of that is what rates
know nothing of, as values and sizes, which is the same for all (`_of_others`).

cpu_bias: from 0 to 1, how far CPU seconds count in the place of seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from frontends.workflow.ir.counters import iterations_counted
from frontends.workflow.ir.dag import CrossJoin, Dag, Join, Leaf, Operator, Scan, Values, While
from frontends.workflow.jobs.graph import JobGraph, bits
from frontends.workflow.mapping.rates import Rates
from frontends.workflow.mapping.sizes import Size, body_sizes
from sparrow_py.errors import InvalidRequest

ITERATIONS_LIKELY = 10
"""Iterations that a loop is assumed to make whose condition does not show how many."""


@dataclass(frozen=True, slots=True)
class EngineModel:
    """An engine, as far as costs go.

    inexpressible: why it cannot run a job, None if it can; asked for single operators, and loops with their results.
    unmergeable: why operators of a DAG, named with sources first, cannot be one job though each can be one; None if
    they always can. warm: whether a host process has run a job. read_whole: of an operator as a job by itself, which
    relation each mapper reads whole for it, if one.
    """

    name: str
    rates: Rates
    inexpressible: Callable[[Dag], str | None]
    unmergeable: Callable[[Dag, Sequence[str]], str | None] | None = None
    warm: bool = False
    read_whole: Callable[[Dag], Mapping[str, str]] | None = None

    @classmethod
    def asking(
        cls,
        name: str,
        rates: Rates,
        inexpressible: Callable[[Dag], str | None],
        *,
        warm: bool = False,
        read_whole: Callable[[Dag], Mapping[str, str]] | None = None,
    ) -> EngineModel:
        """Of an engine that has to be asked about each job as a whole, which takes longer."""
        return cls(name, rates, inexpressible, lambda dag, names: inexpressible(dag.subset(names)), warm, read_whole)


@dataclass(frozen=True, slots=True)
class JobRun:
    """An earlier run of a job on an engine that was warm. bytes_in: what it read."""

    seconds: float
    cpu_seconds: float
    bytes_in: float


Runs = Mapping[frozenset[str], Mapping[str, JobRun]]
"""Runs by the names of the job's operators, scans among them or not, and by the engine."""


@dataclass(frozen=True, slots=True)
class JobCost:
    """The cost of a job on an engine, by its parts in seconds.

    start_s: as warm or cold as the engine then is. from_run: whether the time is that of an earlier run of the job,
    which then stands for all parts; start_s is what a cold start adds.
    """

    engine: str
    start_s: float
    pull_s: float
    load_s: float
    process_s: float
    push_s: float
    cpu_s: float
    from_run: bool = False

    @property
    def seconds(self) -> float:
        return self.start_s + self.pull_s + self.load_s + self.process_s + self.push_s


@dataclass(slots=True)
class _Volumes:
    """How many bytes a job reads and hands on."""

    read: float
    handed_on: float


class JobCosts:
    """The costs of all jobs that a workflow can be partitioned into.

    sizes: of its relations, of which the likely ones count. share_scans: without it each operator reads for itself.
    """

    def __init__(
        self,
        graph: JobGraph,
        engines: Sequence[EngineModel],
        sizes: Mapping[str, Size],
        *,
        cpu_bias: float = 0.0,
        runs: Runs | None = None,
        share_scans: bool = True,
    ) -> None:
        if not 0.0 <= cpu_bias <= 1.0:
            raise InvalidRequest("cpu_bias", cpu_bias, "0 to 1")
        self.graph, self.engines = graph, tuple(engines)
        self._bias, self._share_scans = cpu_bias, share_scans
        self._bytes = {name: size.bytes.likely for name, size in sizes.items()}
        self._process = tuple(self._process_seconds(engine, sizes) for engine in self.engines)
        self._per_unit = [
            tuple(self._biased(one.rates, self._process[place][unit]) for place, one in enumerate(self.engines))
            for unit in range(len(graph))
        ]
        """Of each unit: what its operators cost on each engine."""
        self._per_byte = [
            (
                self._biased(one.rates, 1 / one.rates.pull_bytes_per_s + 1 / one.rates.load_bytes_per_s),
                self._biased(one.rates, 1 / one.rates.push_bytes_per_s),
            )
            for one in self.engines
        ]
        """Of each engine: what a byte costs that is read, and one that is handed on."""
        self._sums: dict[int, tuple[float, ...]] = {0: (0.0,) * len(self.engines)}
        self._expressible = self._units_expressible()
        self._runs = {graph.of_names(name for name in names if name in graph.unit_of): found
                      for names, found in (runs or {}).items()}  # fmt: skip
        self._relations = _Relations(graph)
        self._jobs: dict[tuple[int, int], bool] = {}
        self._options: dict[int, tuple[tuple[int, float], ...]] = {}
        self.warm_starts = tuple(self._biased(one.rates, one.rates.start_warm_s) for one in self.engines)
        self.cold_starts = tuple(
            warm if one.warm else self._biased(one.rates, one.rates.start_cold_s)
            for one, warm in zip(self.engines, self.warm_starts, strict=True)
        )
        """What the first job of a plan costs to start on each engine, and (warm) what later ones cost."""
        self._surcharges: dict[int, float] = {}
        self._corrections = self._all_corrections()

    def options(self, job: int) -> tuple[tuple[int, float], ...]:
        """On which engines this set of units can be a job, and what that costs without the start.

        An engine that another beats, however cold that is and warm this, is left out.
        """
        found = self._options.get(job)
        if found is None:
            found = self._options[job] = self._undominated(job)
        return found

    def all_options(self, job: int) -> list[tuple[int, float]]:
        """As `options`, of all engines that can."""
        return [one for one in self._costs(job) if self.can(one[0], job)]

    def _undominated(self, job: int) -> tuple[tuple[int, float], ...]:
        """The cheapest first. Whether an engine can merge the operators, which takes long, is asked of few."""
        options = sorted(self._costs(job), key=lambda one: one[1] + self.cold_starts[one[0]])
        limit = math.inf
        found: list[tuple[int, float]] = []
        for place, cost in options:
            if cost + self.warm_starts[place] <= limit and self.can(place, job):
                limit = min(limit, cost + self.cold_starts[place])
                found.append((place, cost))
        return tuple(found)

    def _costs(self, job: int) -> list[tuple[int, float]]:
        """The costs on engines that can run each of the job's operators by itself."""
        able = [place for place, units in enumerate(self._expressible) if not job & ~units]
        if not able:
            return []
        volumes, process, runs = self._volumes(job), self._processed(job), self._runs.get(job)
        options = []
        for place in able:
            read, handed_on = self._per_byte[place]
            cost = volumes.read * read + volumes.handed_on * handed_on + process[place]
            run = runs.get(self.engines[place].name) if runs else None
            warm_s = self.warm_starts[place]
            corrected = (cost + warm_s) * self._corrections[place] - warm_s
            options.append((place, corrected if run is None else self._cost_of_run(place, run, volumes)))
        return options

    def surcharge(self, engines: int) -> float:
        """What it costs to start these engines, given as bits, cold rather than warm."""
        found = self._surcharges.get(engines)
        if found is None:
            differences = [self.cold_starts[place] - self.warm_starts[place] for place in bits(engines)]
            found = self._surcharges[engines] = sum(differences)
        return found

    def can(self, engine: int, job: int) -> bool:
        """Whether the engine can express the job."""
        if job & ~self._expressible[engine]:
            return False
        unmergeable = self.engines[engine].unmergeable
        if unmergeable is None or not job & job - 1:
            return True
        known = self._jobs.get((engine, job))
        if known is None:
            known = self._jobs[engine, job] = unmergeable(self.graph.dag, self.graph.in_order(job)) is None
        return known

    def explained(self, job: int, engine: int, cold: bool) -> JobCost:
        """The parts of the cost."""
        one = self.engines[engine]
        rates, volumes = one.rates, self._volumes(job)
        start_s = rates.start_cold_s if cold and not one.warm else rates.start_warm_s
        run = self._run(job, engine)
        if run is not None:
            seconds, cpu_seconds = _scaled(run, volumes, rates)
            start_s -= rates.start_warm_s
            return JobCost(one.name, start_s, 0.0, 0.0, seconds, 0.0, cpu_seconds + start_s * rates.cpus, True)
        slower = self._corrections[engine]
        start_s += (slower - 1.0) * rates.start_warm_s
        pull_s, load_s, process_s, push_s = (slower * seconds for seconds in self._parts(job, engine, volumes))
        seconds = start_s + pull_s + load_s + process_s + push_s
        return JobCost(one.name, start_s, pull_s, load_s, process_s, push_s, seconds * rates.cpus)

    # ---- parts -------------------------------------------------------------------------------

    def _parts(self, job: int, engine: int, volumes: _Volumes) -> tuple[float, float, float, float]:
        """What the rates say: seconds of reading, loading, processing and writing."""
        rates = self.engines[engine].rates
        return (
            volumes.read / rates.pull_bytes_per_s,
            volumes.read / rates.load_bytes_per_s,
            sum(self._process[engine][unit] for unit in bits(job)),
            volumes.handed_on / rates.push_bytes_per_s,
        )

    def _all_corrections(self) -> list[float]:
        """For each engine, how many times as long as its rates say jobs of this workflow take."""
        found = [self._correction(place) for place in range(len(self.engines))]
        others = _of_others([one for one in found if one is not None])
        return [others if one is None else one for one in found]

    def _correction(self, engine: int) -> float | None:
        """How many times as long as the rates say the engine took for those jobs that have run; None if none has."""
        name, rates = self.engines[engine].name, self.engines[engine].rates
        measured_s = estimated_s = 0.0
        for job, found in self._runs.items():
            if name in found and not job & ~self._expressible[engine]:
                volumes = self._volumes(job)
                measured_s += _scaled(found[name], volumes, rates)[0]
                estimated_s += rates.start_warm_s + sum(self._parts(job, engine, volumes))
        return measured_s / estimated_s if measured_s and estimated_s else None

    def _biased(self, rates: Rates, seconds: float) -> float:
        return seconds * (1.0 - self._bias + self._bias * rates.cpus)

    def _processed(self, job: int) -> tuple[float, ...]:
        """What the job's operators cost on each engine; kept for each set, from which larger ones are computed."""
        above: list[int] = []
        rest = job
        while rest not in self._sums:
            above.append(rest.bit_length() - 1)
            rest ^= 1 << above[-1]
        found = self._sums[rest]
        for unit in reversed(above):
            found = tuple(map(float.__add__, found, self._per_unit[unit]))
        if above:
            self._sums[job] = found
        return found

    def _cost_of_run(self, place: int, run: JobRun, volumes: _Volumes) -> float:
        """Without a warm start, which is part of the run's time, and which each option adds."""
        seconds, cpu_seconds = _scaled(run, volumes, self.engines[place].rates)
        return (1.0 - self._bias) * seconds + self._bias * cpu_seconds - self.warm_starts[place]

    def _run(self, job: int, engine: int) -> JobRun | None:
        return self._runs[job].get(self.engines[engine].name) if job in self._runs else None

    def _volumes(self, job: int) -> _Volumes:
        units = list(bits(job))
        pulled = self._relations.pulled(job, units, self._share_scans)
        handed_on = self._relations.handed_on(job, units)
        return _Volumes(sum([self._bytes[name] for name in pulled]), sum([self._bytes[name] for name in handed_on]))

    def _units_expressible(self) -> tuple[int, ...]:
        """For each engine the units that can be a job on it."""
        able = [0] * len(self.engines)
        for unit, names in enumerate(self.graph.units):
            job = self.graph.dag.subset(names)
            for place, engine in enumerate(self.engines):
                if engine.inexpressible(job) is None:
                    able[place] |= 1 << unit
        return tuple(able)

    def _process_seconds(self, engine: EngineModel, sizes: Mapping[str, Size]) -> tuple[float, ...]:
        """What the operators of each unit take."""
        dag = self.graph.dag
        return tuple(
            sum(_operator_seconds(dag, dag.operator(name), engine.rates, sizes) for name in names)
            + _again_seconds(dag, names, engine, sizes)
            for names in self.graph.units
        )


def _of_others(corrections: Sequence[float]) -> float:
    """What n engines, so much slower than their rates say, tell of one that has not run: n / (n + 1) of their mean.

    That is in logarithms, and what is likeliest if a workflow makes engines slower as much as an engine is slower of
    itself. That others were faster promises nothing.
    """
    return math.exp(max(0.0, sum(map(math.log, corrections)) / (len(corrections) + 1)))


def _scaled(run: JobRun, volumes: _Volumes, rates: Rates) -> tuple[float, float]:
    """The seconds and CPU seconds of a run, if it reads as much as now; its start takes as long, however much that
    is."""
    if not run.bytes_in or run.seconds <= rates.start_warm_s:
        return run.seconds, run.cpu_seconds
    growth = volumes.read / run.bytes_in
    seconds = rates.start_warm_s + (run.seconds - rates.start_warm_s) * growth
    return seconds, run.cpu_seconds * seconds / run.seconds


def _operator_seconds(dag: Dag, operator: Operator, rates: Rates, sizes: Mapping[str, Size]) -> float:
    """What an operator of the DAG takes outside of a loop."""
    if isinstance(operator, While):
        return _loop_seconds(dag, operator, rates, sizes)
    return 0.0 if isinstance(operator, Leaf) else rates.operator_seconds(operator.keyword, _read_bytes(operator, sizes))


def _again_seconds(dag: Dag, names: Sequence[str], engine: EngineModel, sizes: Mapping[str, Size]) -> float:
    """What it takes that all mappers but one read again what each needs whole for a join."""
    joins = [name for name in names if isinstance(dag.operator(name), Join | CrossJoin)]
    if engine.read_whole is None or not joins:
        return 0.0
    read = sum(sizes[name].bytes.likely for name in engine.read_whole(dag.subset(joins)).values())
    rates, again = engine.rates, math.ceil(engine.rates.cpus) - 1
    return again * read * (1 / rates.pull_bytes_per_s + 1 / rates.load_bytes_per_s)


def _loop_seconds(dag: Dag, loop: While, rates: Rates, sizes: Mapping[str, Size]) -> float:
    """What a loop of the DAG takes: as many iterations as the first one, as far as it shows how many there are."""
    inside = body_sizes(loop, sizes)
    once = sum(
        _loop_seconds(loop.body, one, rates, inside)
        if isinstance(one, While)
        else rates.iteration_seconds(one.keyword, _read_bytes(one, inside))
        for one in loop.body.operators
        if not isinstance(one, Leaf)
    )
    counted = iterations_counted(dag, loop)
    return once * (min(loop.iterations_max, ITERATIONS_LIKELY) if counted is None else counted)


def _read_bytes(operator: Operator, sizes: Mapping[str, Size]) -> float:
    return sum(sizes[name].bytes.likely for name in operator.inputs)


class _Relations:
    """Which units make and read which relations."""

    def __init__(self, graph: JobGraph) -> None:
        self._graph = graph
        dag, results = graph.dag, set(graph.dag.results)
        first: dict[str, str] = {}
        scanned = {scan.name: first.setdefault(scan.table, scan.name) for scan in dag.of_type(Scan)}
        """For each scan the first one of the same table."""
        self._reads = [
            [
                (scanned.get(name, name), self._maker(name))
                for one in names
                for name in _pulled_by(dag.operator(one))
                if not isinstance(dag.operator(name), Values)
            ]
            for names in graph.units
        ]
        """Of each unit: the relations that it reads, and the unit that makes each of them, as a bit."""
        self._makes = [
            [
                (name, graph.of_names(reader.name for reader in dag.consumers(name)), name in results)
                for name in names
                if name in results or not isinstance(dag.operator(name), Leaf)
            ]
            for names in graph.units
        ]
        """Of each unit: the relations that it makes, the units that read them, and whether each is a result."""

    def _maker(self, name: str) -> int:
        """No unit makes what is scanned or handed in: each job reads it for itself."""
        return 0 if isinstance(self._graph.dag.operator(name), Leaf) else 1 << self._graph.unit_of[name]

    def pulled(self, job: int, units: Iterable[int], once: bool) -> Iterable[str]:
        """What the job reads of others and of tables; each relation once, or as often as it is read."""
        found = [name for unit in units for name, maker in self._reads[unit] if not maker & job]
        return set(found) if once else found

    def handed_on(self, job: int, units: Iterable[int]) -> Iterable[str]:
        """The relations that the job writes: results, and what others read."""
        outside = ~job
        return [name for unit in units for name, readers, result in self._makes[unit] if result or readers & outside]


def _pulled_by(operator: Operator) -> tuple[str, ...]:
    return (operator.name,) if isinstance(operator, Leaf) else operator.inputs
