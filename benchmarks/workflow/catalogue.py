"""The figures by name, as `python -m benchmarks.workflow figure` knows them."""

from __future__ import annotations

from benchmarks.dataflow.catalogue import Figure
from benchmarks.workflow import beside, mapping, overhead, partitioning, rules_off, tpch

QUICK_SIZES = (20_000, 200_000)
"""Rows with which engines are calibrated for `--quick`."""
NOT_SPARK = "Spark is there where the extra workflow-spark is installed, and Java."
WARM = "Engines are warm, as an executor keeps them."
SHORT_LIST = "Of ways that took more than 1.5 times as long as the fastest, the best of two to five tries counts."
CHOSEN = "chosen: where costs send the workflow, by this machine's calibration, without history."

FIGURES: dict[str, Figure] = {
    "4.2": Figure(
        overhead.netflix, "Netflix: generated code beside the same by hand",
        "minimal on Naiad, under 30 % on Spark and Hadoop", {"repeat": 3, "sizes": (20_000,), "cold": 1},
        overhead.targets,
        ("Medians of runs in turn. What is written by hand for MapReduce has three jobs, as the plan has, and its "
         "reducers sum what they hand on, which generated ones do not. DuckDB's own SQL is what is by hand there.",
         NOT_SPARK),
        is_timed=True,
    ),
    "4.3": Figure(
        overhead.page_rank, "PageRank, five iterations: generated code beside the same by hand",
        "under 30 % on all engines", {"repeat": 3, "sizes": (50_000,), "cold": 1}, overhead.targets,
        ("SciPy takes the loop alone: both read what is made before it. MapReduce has no loops.", NOT_SPARK),
        is_timed=True,
    ),
    "4.4": Figure(
        rules_off.top_shopper, "top-shopper with merging, shared scans and inference off",
        "up to 60 % less: 25 to 50 s once, and 5 to 10 % for each 10 million users", {"repeat": 2, "sizes": (20_000,)},
        rules_off.targets, (WARM, NOT_SPARK), is_timed=True,
    ),
    "4.5": Figure(
        rules_off.communities, "cross-community PageRank, five iterations, with the same off",
        "up to 80 % less; an iteration 180 s less on Hadoop, 300 s on Spark", {"repeat": 1, "sizes": (4_000,)},
        rules_off.targets,
        ("MapReduce has no loops, so the iterations are written out: 34 operators.", WARM, NOT_SPARK), is_timed=True,
    ),
    "4.6": Figure(
        beside.query_17, "TPC-H query 17 in HiveQL on each engine", "2 × as fast as Hive on Hadoop; 9 × as Lindi",
        {"repeat": 2, "scales": (0.01,), "sizes_rows": QUICK_SIZES}, beside.targets_query_17,
        (WARM, SHORT_LIST, CHOSEN), is_timed=True,
    ),
    "4.7": Figure(
        beside.page_rank, "PageRank, five iterations, on each engine and mix, and by hand",
        "almost as good as the best at 1, 16 and 100 nodes",
        {"repeat": 2, "sizes": (20_000,), "sizes_rows": QUICK_SIZES}, beside.targets_page_rank,
        ("R-MAT graphs in the place of Orkut and Twitter.", WARM, SHORT_LIST, CHOSEN), is_timed=True,
    ),
    "4.8": Figure(
        beside.page_rank, "the same: CPU efficiency, the least CPU time to the way's",
        "as the best on 1 node, 14 % less on 16, 17 % less on 100",
        {"repeat": 2, "sizes": (20_000,), "sizes_rows": QUICK_SIZES}, beside.targets_efficiency,
        (WARM, SHORT_LIST, CHOSEN),
    ),
    "4.9": Figure(
        beside.mixes, "cross-community PageRank on each engine and each mix of two",
        "Lindi and GraphLINQ together are faster than any engine alone",
        {"repeat": 2, "sizes": (4_000,)}, beside.targets_mixes, (WARM, SHORT_LIST), is_timed=True,
    ),
    "4.10": Figure(
        mapping.choices, "engines that costs choose, beside the best: workflow × data × engines",
        "good for half without history, over 80 % with partial history, all with full; the decision tree is worse",
        {"repeat": 5, "cases": ("top-shopper, 10 k", "PageRank, 20 k"), "sizes_rows": QUICK_SIZES}, mapping.targets,
        (WARM, "Times of ways that are much slower than the fastest are those of the best of two to five tries. "
         "Partial: history has the sizes of half of all relations, at random, and two runs as costs chose; full: the "
         "sizes of all, and the tries of all ways. No run that is judged is in a history.",), is_timed=True,
    ),
    "4.11": Figure(
        mapping.new_workflows, "SSSP and k-means on each engine; ♣ is chosen", "the best engine is chosen for both",
        {"repeat": 1, "sizes_rows": QUICK_SIZES}, mapping.targets_new, (WARM, SHORT_LIST), is_timed=True,
    ),
    "4.12": Figure(
        partitioning.rows, "what it takes to divide a workflow into jobs, CPU time",
        "exhaustive: a second at 13 operators, hundreds at 18; heuristic: below 10 ms",
        {"repeat": 1, "seconds": 0.5}, partitioning.targets,
        ("Rates are defaults. The search over all subsets is left out (-) where it would take over 10 s (`--quick`: "
         "0.5 s); beyond 2,000 downsets, or 50,000 pairs of them, the exact one is. `above best`: cost of the plan.",),
    ),
    "tpch": Figure(
        tpch.queries, "the 22 queries of TPC-H in HiveQL on every engine", "",
        {"repeat": 1, "scale": 0.01}, tpch.targets, (WARM,), is_timed=True,
    ),
}  # fmt: skip
MAPPING = ("4.10", "4.11")
"""What `mapping` measures."""
