"""Figures 4.2 and 4.3: generated code beside code that is written by hand for the same engine, with equal care.

Scripts by hand are in `by_hand/`; an engine that has one and is installed has a row. Both run in the same process of
the engine, read the same files, and have to make the same rows. Warm runs are in turn with each other; cold ones, whose
engine has just been started, apart. `own SQL`: the same in the engine's SQL, where the code by hand is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.flow.outcome import Row, Target, at_most
from benchmarks.report import progress
from benchmarks.workflow.bench import Bench, Times, interleaved
from benchmarks.workflow.parts import Parts
from benchmarks.workflow.ways import BY_HAND, Way, at_loop, by_hand, choice_among, of_jobs, planned
from benchmarks.workflow.workloads import Workload, example
from frontends.workflow.engines import engines
from frontends.workflow.mapping.calibration import Calibration
from frontends.workflow.rewrites.rules import optimised

AIM = 1.1
"""Wall time of generated code to that of code by hand."""
SQL_AIM = 1.05
"""And of that to the engine's own SQL: no slower, but for what two runs of one program differ."""
GENERATED, HAND, SQL = "generated", "by hand", "own SQL"
COLD_RUNS = 3
LOOP_ALONE = ("scipy",)
"""Engines that take nothing but the loop of PageRank: both scripts then begin with what is made before it."""


def engines_by_hand(workflow: str) -> list[str]:
    """The installed engines for which the workflow is written by hand."""
    names = (path.stem.removeprefix(f"{workflow}_") for path in sorted(BY_HAND.glob(f"{workflow}_*.py")))
    return [name for name in names if name in engines() and engines()[name].version() is not None]


def netflix(
    parts: Parts, repeat: int = 9, sizes: Sequence[int] = (50_000, 200_000, 500_000), cold: int = COLD_RUNS
) -> list[Row]:
    """Figure 4.2. sizes: ratings."""
    measured = f"{repeat} runs, {cold} cold, {engines_by_hand('netflix')}"
    return parts.of_each(measured, sizes, lambda size: _rows(example("netflix.hql", size), repeat, cold))


def page_rank(
    parts: Parts, repeat: int = 9, sizes: Sequence[int] = (500_000, 2_000_000), cold: int = COLD_RUNS
) -> list[Row]:
    """Figure 4.3, five iterations. sizes: edges."""
    measured = f"{repeat} runs, {cold} cold, {engines_by_hand('pagerank')}"
    return parts.of_each(measured, sizes, lambda size: _rows(example("pagerank.gas", size, iterations=5), repeat, cold))


def _rows(one: Workload, repeat: int, cold: int) -> list[Row]:
    progress(f"{one.name}: generated code and code by hand")
    workflow = one.name.partition(",")[0]
    with Bench() as bench:
        ways = {name: _ways(bench, one, workflow, name) for name in engines_by_hand(workflow)}
        warm = interleaved(bench, [way for each in ways.values() for way in each], repeat, say=progress)
        begun = {
            way.name: Times([bench.run(way, cold=True) for _ in range(cold)])
            for each in ways.values()
            for way in each
            if way.name in warm
        }
    return [_row(one, name, warm, begun) for name in ways if f"{name}, {GENERATED}" in warm]


def _ways(bench: Bench, one: Workload, workflow: str, engine: str) -> list[Way]:
    directory = bench.directory / engine
    if engine in LOOP_ALONE:
        generated, files = _loop(bench, one, engine, directory)
    else:
        choice = choice_among(one, [engine], Calibration())
        assert choice is not None, f"{engine} cannot run {one.name}, which is written by hand for it"
        generated, files = planned(f"{engine}, {GENERATED}", one, choice, directory), dict(one.files)
    written = (
        by_hand(f"{engine}, {HAND}", workflow, engine, files, directory),
        by_hand(f"{engine}, {SQL}", workflow, f"{engine}_sql", files, directory / "sql"),
    )
    return [generated, *(way for way in written if way is not None)]


def _loop(bench: Bench, one: Workload, engine: str, directory: Path) -> tuple[Way, dict[str, Path]]:
    """The loop alone, and the files that it reads by the names that the script by hand has for them."""
    dag = optimised(one.dag)
    before, loop = at_loop(dag)
    whole = of_jobs(f"{engine}, {GENERATED}", dag, [(before, "duckdb"), (loop, engine)], one.files, directory)
    bench.run(whole)
    step = whole.steps[-1]
    files = {name.partition("_")[0]: path for name, path in step.reads.items()}
    return Way(whole.name, (step,), whole.results), files


def _row(one: Workload, engine: str, warm: Mapping[str, Times], cold: Mapping[str, Times]) -> Row:
    generated, hand, sql = (warm.get(f"{engine}, {kind}") for kind in (GENERATED, HAND, SQL))
    assert generated is not None and hand is not None
    cold_s = {kind: cold[f"{engine}, {kind}"].wall_s for kind in (GENERATED, HAND)}
    return {
        "workflow": one.name,
        "engine": engine,
        "generated_s": generated.wall_s,
        "by hand_s": hand.wall_s,
        "generated × by hand": generated.wall_s / hand.wall_s,
        "generated_cpu_s": generated.cpu_s,
        "by hand_cpu_s": hand.cpu_s,
        "cpu, generated × by hand": generated.cpu_s / hand.cpu_s if hand.cpu_s else None,
        "own SQL_s": None if sql is None else sql.wall_s,
        "by hand × own SQL": None if sql is None else hand.wall_s / sql.wall_s,
        "cold, generated_s": cold_s[GENERATED],
        "cold, by hand_s": cold_s[HAND],
    }


def targets(rows: Sequence[Row]) -> list[Target]:
    """Each row's."""
    made = []
    for row in rows:
        what = f"{row['workflow']}, {row['engine']}"
        made.append(at_most(f"{what}: generated to by hand, 1.1", row["generated × by hand"], AIM, " ×"))
        if row["by hand × own SQL"] is not None:
            made.append(at_most(f"{what}: by hand no slower than own SQL", row["by hand × own SQL"], SQL_AIM, " ×"))
    return made
