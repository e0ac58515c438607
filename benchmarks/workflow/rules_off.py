"""Figures 4.4 and 4.5: what merged operators, shared scans and inferred forms are worth, together and each alone."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.flow.outcome import Row, Target, at_least
from benchmarks.report import progress
from benchmarks.workflow.bench import Bench, interleaved
from benchmarks.workflow.parts import Parts
from benchmarks.workflow.ways import choice_among, planned
from benchmarks.workflow.workloads import Workload, example, unrolled_communities
from frontends.workflow.engines import engines
from frontends.workflow.engines.base import ALL_RULES
from frontends.workflow.mapping.calibration import Calibration

RULES = {"merging": "merge", "shared scans": "share_scans", "inference": "infer_types"}
OFF = {"none": (), "all three": tuple(RULES.values()), **{name: (rule,) for name, rule in RULES.items()}}
"""What a row has switched off."""
ENGINES = ("mapreduce", "pyspark", "pyspark_rdd")
"""The thesis's Hadoop and Spark, as far as they are here and installed."""
WANTED = ("mapreduce", "pyspark")
AIM = 2.0


def top_shopper(
    parts: Parts, repeat: int = 5, sizes: Sequence[int] = (100_000, 1_000_000, 5_000_000)
) -> list[Row]:  # fmt: skip
    """Figure 4.4. sizes: purchases."""
    return parts.of_each(_measured(repeat), sizes, lambda size: _rows(example("top_shopper.hql", size), repeat))


def communities(parts: Parts, repeat: int = 5, sizes: Sequence[int] = (20_000, 200_000)) -> list[Row]:
    """Figure 4.5, without a loop, since MapReduce has none. sizes: edges of each community."""
    return parts.of_each(_measured(repeat), sizes, lambda size: _rows(unrolled_communities(size), repeat))


def _measured(repeat: int) -> str:
    return f"{repeat} runs, {_installed()}"


def _installed() -> list[str]:
    return [name for name in ENGINES if name in engines() and engines()[name].version() is not None]


def _rows(one: Workload, repeat: int) -> list[Row]:
    rows = []
    with Bench() as bench:
        for engine in _installed():
            progress(f"{one.name}: rules of {engine}")
            choice = choice_among(one, [engine], Calibration())
            assert choice is not None, f"{engine} cannot run {one.name}"
            ways = [
                planned(f"without {off}", one, choice, bench.directory / f"{engine} {off}", ALL_RULES.off(*rules))
                for off, rules in OFF.items()
            ]
            times = interleaved(bench, ways, repeat, say=progress)
            whole = times["without none"]
            rows += [
                {
                    "workflow": one.name,
                    "engine": engine,
                    "switched off": off,
                    "jobs": len(choice.plan.jobs),
                    "wall_s": times[f"without {off}"].wall_s,
                    "cpu_s": times[f"without {off}"].cpu_s,
                    "× all on": times[f"without {off}"].wall_s / whole.wall_s,
                    "cpu, × all on": times[f"without {off}"].cpu_s / whole.cpu_s,
                }
                for off in OFF
                if f"without {off}" in times
            ]
    return rows


def targets(rows: Sequence[Row]) -> list[Target]:
    """All three together."""
    made = [
        at_least(f"{row['workflow']}, {row['engine']}: all three are worth 2 ×", row["× all on"], AIM, " ×")
        for row in rows
        if row["switched off"] == "all three"
    ]
    there = {row["engine"] for row in rows}
    lacking = [name for name in WANTED if name not in there]
    return made + [Target(f"{name}: all three are worth 2 ×", "not installed", None) for name in lacking]
