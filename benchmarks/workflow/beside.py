"""Figures 4.6 to 4.9: one workflow on each engine, on mixes of two, and where the costs send it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.flow.outcome import Row, Target, at_least, at_most
from benchmarks.report import progress
from benchmarks.workflow.bench import Bench, Times, shortlisted
from benchmarks.workflow.overhead import engines_by_hand
from benchmarks.workflow.parts import Parts
from benchmarks.workflow.rates import rates_of
from benchmarks.workflow.ways import Way, at_loop, by_hand, choice_among, mixes_at, planned
from benchmarks.workflow.workloads import Workload, example, tpch_query
from frontends.workflow.engines import installed
from frontends.workflow.mapping.calibration import SIZES_ROWS, Calibration
from frontends.workflow.mapping.rates import default_rates
from frontends.workflow.rewrites.rules import optimised

CHOSEN = "chosen"
HAND = "by hand"
SLOW = "mapreduce"
"""The engine that the thesis calls native to Hive."""
TIMES_MAPREDUCE = 2.0
NEAR_BEST, EFFICIENCY = 1.1, 80.0
"""Aims of PageRank: wall time to the best, by hand or generated; per cent of the CPU efficiency of the thriftiest."""
WINS = 1.05
"""How much faster a mix has to be to win."""
LIMIT_S = 60.0


def engine_names() -> list[str]:
    """Of all that are installed; those that are likely to be fast first, so that others need not be waited for."""
    names = [one.name for one in installed()]
    return sorted(names, key=lambda name: -default_rates(name).process_other_bytes_per_s)


def singles(one: Workload, rates: Calibration, directory: Path) -> Iterator[Way]:
    """The workflow on each engine that can run all of it, with the jobs that cost least there."""
    for name in engine_names():
        choice = choice_among(one, [name], rates)
        if choice is not None:
            yield planned(name, one, choice, directory / name)


def loop_mixes(one: Workload, directory: Path) -> Iterator[Way]:
    """What is before the loop on one engine, and the loop on another, in all ways."""
    dag = optimised(one.dag)
    before, _ = at_loop(dag)
    return mixes_at(one, dag, before, engine_names(), directory)


def chosen(one: Workload, rates: Calibration, directory: Path) -> Way:
    """Where the costs send the workflow."""
    choice = choice_among(one, engine_names(), rates)
    assert choice is not None, f"no engines run {one.name}"
    way = planned(CHOSEN, one, choice, directory / CHOSEN)
    progress(f"{one.name}: costs choose {' + '.join(way.engines)}")
    return way


def _rows(one: Workload, ways: Sequence[Way], times: dict[str, Times]) -> list[Row]:
    """The fastest first."""
    best_s, thrifty_s = (min(getattr(each, kind) for each in times.values()) for kind in ("wall_s", "cpu_s"))
    rows = []
    for way in sorted((way for way in ways if way.name in times), key=lambda way: times[way.name].wall_s):
        found = times[way.name]
        rows.append(
            {
                "workflow": one.name,
                "way": way.name,
                "engines": " + ".join(way.engines),
                "jobs": len(way.steps),
                "runs": len(found.runs),
                "wall_s": found.wall_s,
                "cpu_s": found.cpu_s,
                "× best": found.wall_s / best_s,
                "efficiency_%": 100 * thrifty_s / found.cpu_s if found.cpu_s else None,
            }
        )
    return rows


def _measured(repeat: int) -> str:
    """By which parts of a figure are known again."""
    return f"{repeat} runs, {engine_names()}"


# ---- 4.6 -------------------------------------------------------------------------------------


def query_17(
    parts: Parts, repeat: int = 5, scales: Sequence[float] = (0.1, 1.0, 3.0), sizes_rows: Sequence[int] = SIZES_ROWS
) -> list[Row]:
    """TPC-H query 17 in HiveQL. scales: TPC-H's; sizes_rows: with which engines are calibrated."""
    return parts.of_each(_measured(repeat), scales, lambda scale: _query_17(tpch_query(17, scale), repeat, sizes_rows))


def _query_17(one: Workload, repeat: int, sizes_rows: Sequence[int]) -> list[Row]:
    rates = rates_of(engine_names(), sizes_rows)
    with Bench() as bench:
        ways = [*singles(one, rates, bench.directory), chosen(one, rates, bench.directory)]
        among: list[Callable[[Way], bool]] = [
            lambda way: True,
            lambda way: way.name == SLOW,
        ]  # What is compared with has medians, too.
        return _rows(one, ways, shortlisted(bench, ways, repeat, progress, LIMIT_S, among))


def targets_query_17(rows: Sequence[Row]) -> list[Target]:
    return [
        at_least(
            f"{name}: as chosen ({row['engines']}), to MapReduce, 2 ×",
            slow["wall_s"] / row["wall_s"] if (slow := _one(rows, name, SLOW)) else None,
            TIMES_MAPREDUCE,
            " ×",
        )
        for name in _workflows(rows)
        if (row := _one(rows, name, CHOSEN))
    ]


# ---- 4.7 and 4.8 -----------------------------------------------------------------------------


def page_rank(
    parts: Parts, repeat: int = 5, sizes: Sequence[int] = (200_000, 2_000_000), sizes_rows: Sequence[int] = SIZES_ROWS
) -> list[Row]:
    """PageRank in GAS, five iterations. sizes: edges."""
    return parts.of_each(
        _measured(repeat),
        sizes,
        lambda size: _page_rank(example("pagerank.gas", size, iterations=5), repeat, sizes_rows),
    )


def _page_rank(one: Workload, repeat: int, sizes_rows: Sequence[int]) -> list[Row]:
    rates = rates_of(engine_names(), sizes_rows)
    with Bench() as bench:
        written = (
            by_hand(f"{name} {HAND}", "pagerank", name, one.files, bench.directory / f"{name}-hand")
            for name in engines_by_hand("pagerank")
        )
        ways = [
            chosen(one, rates, bench.directory),
            *(way for way in written if way is not None),
            *singles(one, rates, bench.directory),
            *loop_mixes(one, bench.directory),
        ]
        return _rows(one, ways, shortlisted(bench, ways, repeat, progress, LIMIT_S))


def targets_page_rank(rows: Sequence[Row]) -> list[Target]:
    """How near the best; the baselines are all engines, mixes, and the scripts by hand."""
    return [
        at_most(f"{name}: as chosen ({row['engines']}), to the best, 1.1", row["× best"], NEAR_BEST, " ×")
        for name in _workflows(rows)
        if (row := _one(rows, name, CHOSEN))
    ]


def targets_efficiency(rows: Sequence[Row]) -> list[Target]:
    """Of what is chosen. The thriftiest of all ways, by hand or generated, has 100 %."""
    return [
        at_least(f"{name}: CPU efficiency of what is chosen, 80 %", row["efficiency_%"], EFFICIENCY, " %")
        for name in _workflows(rows)
        if (row := _one(rows, name, CHOSEN))
    ]


# ---- 4.9 -------------------------------------------------------------------------------------


def mixes(parts: Parts, repeat: int = 5, sizes: Sequence[int] = (20_000, 200_000, 1_000_000)) -> list[Row]:
    """Cross-community PageRank on each engine and each mix of two. sizes: edges of each community."""
    return parts.of_each(
        _measured(repeat), sizes, lambda size: _mixes(example("cross_community_pagerank.beer", size), repeat)
    )


def _mixes(one: Workload, repeat: int) -> list[Row]:
    with Bench() as bench:
        ways = [*singles(one, Calibration(), bench.directory), *loop_mixes(one, bench.directory)]
        return _rows(one, ways, shortlisted(bench, ways, repeat, progress, LIMIT_S))


def targets_mixes(rows: Sequence[Row]) -> list[Target]:
    """Whether a mix wins at a size; if at none, at which it would, as times grow."""
    made: list[Target] = []
    points: list[tuple[int, float, float]] = []
    for name in _workflows(rows):
        single, mix = fastest(rows, name, mixed=False), fastest(rows, name, mixed=True)
        if single is None or mix is None:
            continue
        ratio = single["wall_s"] / mix["wall_s"]
        points.append((size_of_name(name), single["wall_s"], mix["wall_s"]))
        made.append(at_least(f"{name}: best engine ({single['way']}) to best mix ({mix['way']})", ratio, WINS, " ×"))
    wins = [size for size, single_s, mix_s in points if single_s >= WINS * mix_s]
    where = f"from {min(wins):,} edges on" if wins else f"at none of these sizes; {crossing(points)}"
    return [*made, Target("a mix wins a workflow", where, bool(wins))]


def crossing(points: Sequence[tuple[int, float, float]]) -> str:
    """From which size a mix would win, by the lines through the times at the two greatest sizes."""
    if len(points) < 2:
        return "one size says nothing about others"
    (one, single_s, mix_s), (size, last_single_s, last_mix_s) = sorted(points)[-2:]
    gain_s = ((last_single_s - single_s) - (last_mix_s - mix_s)) / (size - one)
    if gain_s <= 0:
        return "a mix costs more for each edge, too"
    return (
        f"from about {size + (last_mix_s - last_single_s) / gain_s:,.0f} edges on, as times grow between the last two"
    )


def fastest(rows: Sequence[Row], workflow: str, *, mixed: bool) -> Row | None:
    """The fastest way on two engines, or on one."""
    found = [row for row in rows if row["workflow"] == workflow and (" + " in row["engines"]) is mixed]
    return min(found, key=lambda row: float(row["wall_s"]), default=None)


def size_of_name(workflow: str) -> int:
    """The size that is the end of a workload's name."""
    return int(workflow.rpartition(", ")[2].replace(",", ""))


def _workflows(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["workflow"] for row in rows))


def _one(rows: Sequence[Row], workflow: str, way: str) -> Row | None:
    return next((row for row in rows if (row["workflow"], row["way"]) == (workflow, way)), None)
