"""Figures 4.10 and 4.11: how good the engines are to which costs send workflows.

A configuration is a workflow, its data, and the engines that may be used: `CASES` times `ENGINE_SETS`. The truth are
measured times: of the workflow on each engine, of it divided in two at one place over each pair of engines, and of
whatever was chosen. The place is the loop if there is one, else that between two jobs where least is handed over. Each
is tried; those not much slower than the fastest run again, in turn, and medians count. What histories know was
measured before that (`choosing`). A choice is good within 10 % of the best, or if the middle three of five runs of both
overlap; it is reasonable within 30 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.flow.outcome import Row, Target, at_least
from benchmarks.report import progress
from benchmarks.workflow.bench import Bench, Times, Tries
from benchmarks.workflow.beside import LIMIT_S, engine_names, singles
from benchmarks.workflow.choosing import FULL, NONE, PARTIAL, Chooser, distinct
from benchmarks.workflow.decision_tree import Features, decided
from benchmarks.workflow.parts import Parts
from benchmarks.workflow.rates import rates_of
from benchmarks.workflow.ways import Way, at_loop, mixes_at, of_jobs
from benchmarks.workflow.workloads import Workload, example, join, project, tpch_query
from frontends.workflow.engines import engine as engine_of
from frontends.workflow.ir.dag import Dag, While
from frontends.workflow.jobs.graph import JobGraph, bits
from frontends.workflow.mapping.calibration import SIZES_ROWS, Calibration
from frontends.workflow.mapping.partition import DOWNSETS_MAX
from frontends.workflow.mapping.sizes import TableSize
from frontends.workflow.rewrites.rules import optimised
from frontends.workflow.table_files import size_of

CASES: dict[str, Callable[[], Workload]] = {
    "project, 1 M": lambda: project(1_000_000),
    "join, 1 M": lambda: join(1_000_000),
    "top-shopper, 10 k": lambda: example("top_shopper.hql", 10_000),
    "top-shopper, 2 M": lambda: example("top_shopper.hql", 2_000_000),
    "TPC-H 17, 0.01": lambda: tpch_query(17, 0.01),
    "TPC-H 17, 0.3": lambda: tpch_query(17, 0.3),
    "Netflix, 20 k": lambda: example("netflix.hql", 20_000),
    "Netflix, 100 k": lambda: example("netflix.hql", 100_000),
    "PageRank, 20 k": lambda: example("pagerank.gas", 20_000, iterations=5),
    "PageRank, 500 k": lambda: example("pagerank.gas", 500_000, iterations=5),
    "cross-community, 100 k": lambda: example("cross_community_pagerank.beer", 100_000),
}
NEW_CASES: dict[str, Callable[[], Workload]] = {
    "SSSP, 200 k": lambda: example("sssp.gas", 200_000, iterations=5),
    "k-means, 20 k": lambda: example("kmeans.beer", 20_000),
}
"""The workflows of figure 4.11, on which nothing was tried before."""
FASTEST = ("duckdb", "datafusion", "polars")
SPREAD = ("mapreduce", "dask", "pyspark", "pyspark_rdd", "scipy", "numba")
ENGINE_SETS: dict[str, Callable[[str], bool]] = {
    "all": lambda name: True,
    "no SQL engine, no Polars": lambda name: name not in FASTEST,
    "those for clusters, and graphs": lambda name: name in SPREAD,
}
TREE = "decision tree"
WHO = (TREE, NONE, PARTIAL, FULL)
GOOD, REASONABLE = 1.1, 1.3
AIMS = {NONE: 50.0, PARTIAL: 80.0, FULL: 100.0}
"""Per cent of choices that should be good."""


# ---- a workload: what is measured, what is chosen --------------------------------------------


def measured_case(name: str, one: Workload, repeat: int, rates: Calibration) -> list[Row]:
    """All ways with their times, and for each set of engines what was chosen: rows that `configurations` reads."""
    progress(f"mapping: {name}")
    with Bench() as bench:
        sizes = profiled(bench, one)
        tries = Tries(bench, progress, LIMIT_S, _sets())
        tries.add(distinct([*singles(one, rates, bench.directory), *_cut_in_two(one, sizes, bench.directory)]))
        chooser = Chooser(one, sizes, rates, bench.directory, tries)
        rows: list[Row] = []
        for label, allowed in ENGINE_SETS.items():
            engines = [engine for engine in engine_names() if allowed(engine)]
            for who, way in chooser.chosen(engines, label).items():
                rows.append({"case": name, "may use": label, "who": who, "way": way.name})
            if rows and rows[-1]["may use"] == label:
                tree = " + ".join(decided(features_of(one), engines))
                rows.append({"case": name, "may use": label, "who": TREE, "way": tree})
        times = tries.finished(repeat)
        return [*(_way_row(name, way, times[way.name]) for way in tries.ways if way.name in times), *rows]


def _sets() -> list[Callable[[Way], bool]]:
    """For each set of engines whether a way keeps to it."""

    def keeping_to(allowed: Callable[[str], bool]) -> Callable[[Way], bool]:
        return lambda way: all(map(allowed, way.engines))

    return [keeping_to(allowed) for allowed in ENGINE_SETS.values()]


def _way_row(case: str, way: Way, times: Times) -> Row:
    low, high = times.middle_s
    return {
        "case": case, "way": way.name, "engines": list(way.engines), "runs": len(times.runs), "wall_s": times.wall_s,
        "low_s": low, "high_s": high, "cpu_s": times.cpu_s,
    }  # fmt: skip


def profiled(bench: Bench, one: Workload) -> list[tuple[Dag, dict[str, TableSize]]]:
    """The true sizes of all relations, of the workflow as it is and rewritten: each operator is a job."""
    found = []
    for number, dag in enumerate((one.dag, optimised(one.dag))):
        graph = JobGraph(dag)
        jobs = [(frozenset(unit), "duckdb") for unit in graph.units]
        way = of_jobs("profile", dag, jobs, one.files, bench.directory / f"profile{number}")
        bench.run(way)
        sizes = {name: size_of(path) for step in way.steps for name, path in step.makes.items()}
        found.append((graph.dag, sizes))
    return found


def _cut_in_two(
    one: Workload, sizes: Sequence[tuple[Dag, dict[str, TableSize]]], directory: Path
) -> Iterable[Way]:  # fmt: skip
    dag, of_relations = sizes[-1]
    before = cut(dag, of_relations)
    return mixes_at(one, dag, before, engine_names(), directory) if before else ()


def cut(dag: Dag, sizes: Mapping[str, TableSize]) -> frozenset[str]:
    """The operators before the loop; without one those between which and the rest fewest bytes are handed over."""
    if dag.of_type(While):
        return at_loop(dag)[0]
    graph = JobGraph(dag)
    halves = [done for done in graph.downsets(DOWNSETS_MAX) or () if done not in (0, graph.all)]
    return graph.names(min(halves, key=lambda done: _bytes_between(graph, done, sizes), default=0))


def _bytes_between(graph: JobGraph, done: int, sizes: Mapping[str, TableSize]) -> int:
    inside = graph.names(done)
    handed_over = {
        name
        for unit in bits(graph.all & ~done)
        for reader in graph.units[unit]
        for name in graph.dag.operator(reader).inputs
        if name in inside
    }
    return sum(sizes[name].bytes or 0 for name in handed_over)


def features_of(one: Workload) -> Features:
    """What the decision tree looks at."""
    dag = optimised(one.dag)
    loops = dag.of_type(While)
    is_graph = bool(loops) and engine_of("scipy").inexpressible(dag.subset(at_loop(dag)[1])) is None
    return Features(one.bytes, bool(loops), is_graph)


# ---- configurations: how good the choices are ------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """Of one choice. times: its wall time to the best; None if it could not be run."""

    way: str
    times: float | None
    good: bool

    @property
    def reasonable(self) -> bool:
        return self.good or (self.times is not None and self.times <= REASONABLE)


def judged(choice: str, ways: Mapping[str, Row]) -> Verdict:
    """ways: those that the engines allow, by their names."""
    best = min(ways.values(), key=lambda row: float(row["wall_s"]))
    found = ways.get(choice)
    if found is None:
        return Verdict(choice, None, good=False)
    times = found["wall_s"] / best["wall_s"]
    overlap = found["runs"] >= 3 and found["low_s"] <= best["high_s"]
    return Verdict(choice, times, times <= GOOD or overlap)


def configurations(rows: Sequence[Row]) -> list[Row]:
    """A row for each workload and set of engines: the best way, and how far off each choice is."""
    made = []
    for case in dict.fromkeys(row["case"] for row in rows):
        ways = {row["way"]: row for row in rows if row["case"] == case and "wall_s" in row}
        for label, allowed in ENGINE_SETS.items():
            choices = {
                row["who"]: row["way"] for row in rows if row["case"] == case and row.get("may use") == label
            }  # fmt: skip
            may = {name: row for name, row in ways.items() if all(map(allowed, row["engines"]))}
            if not choices or not may:
                continue
            best = min(may.values(), key=lambda row: float(row["wall_s"]))
            row: Row = {"workflow": case, "may use": label, "best": _shown(best), "best_s": best["wall_s"]}
            for who in WHO:
                verdict = judged(choices[who], may)
                row |= {
                    who: _shown(may[verdict.way]) if verdict.way in may else f"{verdict.way}: not run to its end",
                    f"{who}, × best": verdict.times,
                    f"{who}, verdict": "good" if verdict.good else "reasonable" if verdict.reasonable else "poor",
                }
            made.append(row)
    return made


def _shown(way: Row) -> str:
    return " + ".join(way["engines"])


def summary(rows: Sequence[Row]) -> list[Row]:
    """How many choices are good: figure 4.10."""
    return [
        {
            "who": who,
            "configurations": len(rows),
            **{
                f"{kind}_%": 100 * sum(row[f"{who}, verdict"] == kind for row in rows) / len(rows)
                for kind in ("good", "reasonable", "poor")
            },
            "worst, × best": max((row[f"{who}, × best"] for row in rows if row[f"{who}, × best"]), default=None),
        }
        for who in WHO
        if rows
    ]


def choices(
    parts: Parts, repeat: int = 5, cases: Sequence[str] = tuple(CASES), sizes_rows: Sequence[int] = SIZES_ROWS
) -> list[Row]:
    """Figure 4.10: the summary, then each configuration."""
    made = configurations(_all_rows(parts, CASES, cases, repeat, sizes_rows))
    return [*summary(made), *made]


def new_workflows(
    parts: Parts, repeat: int = 5, cases: Sequence[str] = tuple(NEW_CASES), sizes_rows: Sequence[int] = SIZES_ROWS
) -> list[Row]:
    """Figure 4.11: two more workflows on each engine; which one is chosen without history."""
    rows = _all_rows(parts, NEW_CASES, cases, repeat, sizes_rows)
    made = []
    for case in cases:
        ways = [row for row in rows if row["case"] == case and "wall_s" in row]
        chosen = {row["way"] for row in rows if (row.get("who"), row.get("may use")) == (NONE, "all")}
        best_s = min(row["wall_s"] for row in ways)
        made += [
            {
                "workflow": case,
                "engines": _shown(row),
                "wall_s": row["wall_s"],
                "cpu_s": row["cpu_s"],
                "× best": row["wall_s"] / best_s,
                "chosen": "♣" if row["way"] in chosen else "",
            }
            for row in sorted(ways, key=lambda row: float(row["wall_s"]))
        ]
    return made


def _all_rows(
    parts: Parts, known: Mapping[str, Callable[[], Workload]], cases: Sequence[str], repeat: int,
    sizes_rows: Sequence[int],
) -> list[Row]:  # fmt: skip
    rates = rates_of(engine_names(), sizes_rows)
    measured = f"{repeat} runs, {engine_names()}"
    return parts.of_each(measured, cases, lambda case: measured_case(case, known[case](), repeat, rates))


def targets(rows: Sequence[Row]) -> list[Target]:
    """Figure 4.10's."""
    tells = [row for row in rows if "configurations" in row]
    made = [
        at_least(f"good choices, {row['who']}: {AIMS[row['who']]:.0f} %", row["good_%"], AIMS[row["who"]], " %")
        for row in tells
        if row["who"] in AIMS
    ]
    tree = next((row["good_%"] for row in tells if row["who"] == TREE), None)
    first = next((row["good_%"] for row in tells if row["who"] == NONE), None)
    if tree is not None and first is not None:
        text = f"good choices without history, to the decision tree's {tree:.0f} %: more"
        made.append(Target(text, f"{first:.0f} %", first > tree))
    return made


def targets_new(rows: Sequence[Row]) -> list[Target]:
    """Figure 4.11's: the best engine, or nearly."""
    return [
        Target(f"{row['workflow']}: chosen ({row['engines']}) is within 10 % of the best", f"{row['× best']:.3g} ×",
               row["× best"] <= GOOD)
        for row in rows
        if row["chosen"]
    ]  # fmt: skip
