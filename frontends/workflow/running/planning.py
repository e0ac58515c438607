"""Plans of workflows from what is known: tables, engines and their rates, history, and what failed before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from frontends.workflow.engines import engine as engine_of
from frontends.workflow.engines.base import ALL_RULES, Rules
from frontends.workflow.ir.dag import Dag, Leaf
from frontends.workflow.jobs.map_joins import NONE_SMALL
from frontends.workflow.mapping import calibration
from frontends.workflow.mapping.calibration import Calibration
from frontends.workflow.mapping.costs import EngineModel, Runs
from frontends.workflow.mapping.history import History
from frontends.workflow.mapping.partition import Plan, cheapest, replanned
from frontends.workflow.mapping.sizes import TableSize
from frontends.workflow.mapping.small_relations import small_relations
from frontends.workflow.rewrites.joins import nothing_known
from frontends.workflow.rewrites.rules import variants
from frontends.workflow.running.execution import Barred, PlannedJob
from frontends.workflow.switches import Switches
from frontends.workflow.user_files import calibration_path

NOTHING_BARRED = Barred()


@dataclass
class CostPlanner:
    """The cheapest plan of the rest of a workflow, by its costs.

    tables: sizes of those that are scanned. engines: {name: whether it is warm}. history_sizes, runs: what earlier runs
    of the workflow have shown. rules: of the code that is generated. small: relations that were surely small when the
    last plan was made. last: that plan, for who wants to see it.
    """

    tables: Mapping[str, TableSize]
    engines: dict[str, bool]
    rates: Calibration
    history_sizes: Mapping[str, TableSize] = field(default_factory=dict)
    runs: Runs = field(default_factory=dict)
    cpu_bias: float = 0.0
    rules: Rules = ALL_RULES
    small: frozenset[str] = NONE_SMALL
    last: Plan | None = None

    def plan(self, rest: Dag, known: Mapping[str, TableSize], barred: Barred) -> Sequence[PlannedJob]:
        """As `execution.Planner` has it; `NoEngine` if an operator cannot be run."""
        self.small = small_relations(rest, self.tables, known) if self.rules.map_joins else NONE_SMALL
        made = replanned(
            rest,
            (),
            self.costed_engines(barred),
            self.tables,
            {**self.history_sizes, **known},
            cpu_bias=self.cpu_bias,
            runs=self._runs_within(rest),
        )
        self.last = made if made is None else replace(made, small=self.small)
        return [PlannedJob(one.operators, one.engine, self.small) for one in made.jobs] if made is not None else []

    def costed_engines(self, barred: Barred = NOTHING_BARRED) -> list[EngineModel]:
        """The engines, as far as costs go."""
        return [self._engine(name, barred, warm=warm) for name, warm in self.engines.items()]

    def _engine(self, name: str, barred: Barred, *, warm: bool) -> EngineModel:
        engine, small = engine_of(name), self.small
        whole = partial(engine.read_whole, rules=self.rules, small=small) if small and not engine.merges_all else None
        if not barred.failed:
            unmergeable = None if engine.merges_all else partial(engine.unmergeable, rules=self.rules, small=small)
            return EngineModel(name, self.rates.rates(name), engine.inexpressible, unmergeable, warm, whole)

        def inexpressible(job: Dag) -> str | None:
            return barred.reason(name, job.names) or engine.refused(job, self.rules, small)

        return EngineModel.asking(name, self.rates.rates(name), inexpressible, warm=warm, read_whole=whole)

    def _runs_within(self, rest: Dag) -> Runs:
        """Runs of jobs all of whose operators are still to be done."""
        open_names = {one.name for one in rest.operators if not isinstance(one, Leaf)}
        leaves = {one.name for one in rest.operators if isinstance(one, Leaf)}
        return {names: found for names, found in self.runs.items() if names - leaves <= open_names}

    def started(self, engine: str) -> None:
        """The engine has a warm process from now on."""
        self.engines[engine] = True


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to run: the rewritten workflow whose plan is cheapest, the plan, and who plans what is left of it."""

    dag: Dag
    plan: Plan
    planner: CostPlanner


def choose(
    dag: Dag,
    tables: Mapping[str, TableSize],
    engines: Mapping[str, bool],
    switches: Switches,
    *,
    history: History | None = None,
    rates: Calibration | None = None,
    cpu_bias: float = 0.0,
) -> Choice:
    """Of the workflow and what rewrites make of it, that whose plan is cheapest (§3.6). engines: {name: warm}."""
    rates = rates if rates is not None else calibration.load(calibration_path())
    planners: dict[int, CostPlanner] = {}

    def planned(one: Dag) -> Plan:
        planner = planner_of(one, tables, engines, rates, history, cpu_bias, switches.rules)
        planner.plan(one, {}, Barred())
        assert planner.last is not None
        planners[id(planner.last)] = planner
        return planner.last

    best = cheapest(
        variants(dag, switches.rewrites, history.known_rows if history is not None else nothing_known), planned
    )
    return Choice(best.dag, best, planners[id(best)])


def planner_of(
    dag: Dag,
    tables: Mapping[str, TableSize],
    engines: Mapping[str, bool],
    rates: Calibration,
    history: History | None,
    cpu_bias: float,
    rules: Rules,
) -> CostPlanner:
    """A planner for this DAG and what is left of it."""
    known = history.known_sizes(dag) if history is not None else {}
    runs = history.runs(dag) if history is not None else {}
    return CostPlanner(tables, dict(engines), rates, known, runs, cpu_bias, rules)


def unmeasured(planner: CostPlanner, engines: Iterable[str]) -> tuple[str, ...]:
    """Those engines whose rates are guesses."""
    return planner.rates.unmeasured(engines)


def history_at(path: Path) -> History:
    """The history in this file, in a directory that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return History(str(path))
