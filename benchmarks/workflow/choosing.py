"""What costs choose for a workload with more and more history, for figures 4.10 and 4.11.

Without history they know the tables. With partial history, which a workflow acquires as it runs again and again, the
sizes of half of all relations, drawn at random, and what two runs have left, which were as costs chose then. With full
history the sizes of all relations, as an operator-by-operator run leaves them, and what runs of all ways that are tried
have left: on each engine, of mixes, and of what costs chose instead, until they choose nothing that has not run.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.workflow.bench import Ran, Tries
from benchmarks.workflow.ways import Way, choice_among, planned
from benchmarks.workflow.workloads import Workload
from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.printing import printed
from frontends.workflow.mapping.calibration import Calibration
from frontends.workflow.mapping.costs import JobRun
from frontends.workflow.mapping.history import History
from frontends.workflow.mapping.partition import Plan
from frontends.workflow.mapping.sizes import TableSize, read_bytes
from frontends.workflow.table_files import size_of

NONE, PARTIAL, FULL = "no history", "partial history", "full history"
RUNS_BEFORE = 2
"""Runs that partial history has seen."""
ROUNDS_MAX = 12
"""How often full history lets costs choose something that has not run."""

ProfiledSizes = Sequence[tuple[Dag, Mapping[str, TableSize]]]
"""The sizes of all relations of the workflow, as it is and rewritten."""


class Chooser:
    """Chooses ways for a workload. What it chooses is tried, which is what histories learn from."""

    def __init__(self, one: Workload, sizes: ProfiledSizes, rates: Calibration, directory: Path, tries: Tries) -> None:
        self._one, self._sizes, self._rates, self._directory, self._tries = one, sizes, rates, directory, tries
        self._ways = {jobs_key(way): way for way in tries.ways}
        self._files = 0

    def chosen(self, engines: Sequence[str], label: str) -> dict[str, Way]:
        """Who chooses which way; nobody any if the engines cannot run the workflow."""
        with self._history() as history:
            first = self._choice(engines, history)
        if first is None:
            return {}
        return {NONE: first, PARTIAL: self._with_partial(engines, label), FULL: self._with_full(engines)}

    def _with_partial(self, engines: Sequence[str], label: str) -> Way:
        names = {name for _, of_relations in self._sizes for name in of_relations}
        with self._history() as history:
            self._add_sizes(history, half(names, f"{self._one.name}, {label}"))
            for _ in range(RUNS_BEFORE):
                self._learn(history, self._certain(engines, history))
            return self._certain(engines, history)

    def _with_full(self, engines: Sequence[str]) -> Way:
        with self._history() as history:
            self._add_sizes(history)
            for way in self._tries.ways:
                self._learn(history, way)
            seen: set[str] = {way.name for way in self._tries.ways}
            for _ in range(ROUNDS_MAX):
                way = self._certain(engines, history)
                if way.name in seen:
                    break
                seen.add(way.name)
                self._learn(history, way)
            return way

    def _certain(self, engines: Sequence[str], history: History) -> Way:
        way = self._choice(engines, history)
        assert way is not None, "engines that can run a workflow can with more history, too"
        return way

    def _choice(self, engines: Sequence[str], history: History) -> Way | None:
        """What costs choose now, tried."""
        choice = choice_among(self._one, engines, self._rates, history)
        if choice is None:
            return None
        way = planned(_plan_name(choice.plan), self._one, choice, self._directory / f"choice{len(self._ways)}")
        known = self._ways.setdefault(jobs_key(way), way)
        if known is way:
            self._tries.add([way])
        return known

    # ---- history ---------------------------------------------------------------------------------

    def _history(self) -> History:
        self._files += 1
        return History(str(self._directory / f"history{self._files}.sqlite"))

    def _add_sizes(self, history: History, names: Collection[str] | None = None) -> None:
        for dag, of_relations in self._sizes:
            history.add_sizes(
                dag, {name: size for name, size in of_relations.items() if names is None or name in names}
            )

    def _learn(self, history: History, way: Way) -> None:
        ran = self._tries.try_of(way)
        if ran is not None and way.dag is not None:
            learn(history, self._one, way, way.dag, ran)


def learn(history: History, one: Workload, way: Way, dag: Dag, ran: Ran) -> None:
    """Keep what a run has shown, as `sparrow workflow run` does."""
    known: dict[str, TableSize] = {}
    for step, (wall_s, cpu_s) in zip(way.steps, ran.steps, strict=True):
        job = dag.subset(step.operators)
        bytes_in = read_bytes(job, one.sizes, known)
        known |= {name: size_of(path) for name, path in step.makes.items()}
        names = [operator.name for operator in job.operators if operator.name in step.operators]
        history.add_run(dag, names, step.engine, JobRun(wall_s, cpu_s, bytes_in))
    history.add_sizes(dag, known)


def half(relations: Collection[str], seed: str) -> frozenset[str]:
    """Half of the relations, at random."""
    return frozenset(random.Random(seed).sample(sorted(relations), len(relations) // 2))


# ---- ways --------------------------------------------------------------------------------------


def jobs_key(way: Way) -> tuple[tuple[str, str], ...]:
    """What runs: two plans with the same code on the same engines are one way."""
    return tuple((step.engine, step.source) for step in way.steps)


def distinct(ways: Iterable[Way]) -> list[Way]:
    """The first of those that are one way."""
    found: dict[tuple[tuple[str, str], ...], Way] = {}
    for way in ways:
        found.setdefault(jobs_key(way), way)
    return list(found.values())


def _plan_name(plan: Plan) -> str:
    """Distinct for plans that differ."""
    jobs = "; ".join(f"{job.engine}: {', '.join(sorted(job.operators))}" for job in plan.jobs)
    return f"{jobs}\n{printed(plan.dag)}"
