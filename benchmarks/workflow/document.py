"""docs/workflow-figures.md, from results."""

# ruff: noqa: E501  (a paragraph of a document is one line)

from __future__ import annotations

BEGINNING = """\
# Figures of workflows

What chapter 4 of Gog's thesis on Musketeer shows, measured here beside its numbers. Written by `python -m benchmarks.workflow document` from `benchmarks/workflow/results.jsonl`; how workflows are written and run is in [workflow.md](workflow.md), how they are mapped to engines in [workflow-mapping.md](workflow-mapping.md).

```sh
python -m benchmarks.workflow figure                     # all figures: hours
python -m benchmarks.workflow figure 4.2 4.3 --json
python -m benchmarks.workflow figure 4.9 --quick         # smaller and fewer
python -m benchmarks.workflow mapping --resume           # 4.10 and 4.11; go on where an interrupted run ended
python -m benchmarks.workflow tpch                       # the 22 queries on every engine
python -m benchmarks.workflow differences                # how engines answer the same questions
python -m benchmarks.workflow figure 4.4 --results benchmarks/workflow/results.jsonl
python -m benchmarks.workflow document                   # this page
```

**How to read it.** The thesis has seven and a hundred machines, and gigabytes; here are two cores, one machine, and data that such a machine goes through in seconds: TPC-H by tpchgen-cli, R-MAT graphs, ratings and purchases by `frontends/workflow/example_data.py`, the same for the same seed. Tables and calibrations are kept in the cache directory of the account (`SPARROW_WORKFLOW_FIGURES` names another). Figures 4.6 to 4.8, 4.10 and 4.11 plan with the rates of this machine, which are measured before the first of them, as `sparrow workflow calibrate` measures them at its usual sizes; SciPy and Numba, which run nothing but loops, are measured by PageRank. Code runs as an executor runs it: in a process of its engine, which is warm unless a column says `cold`. MapReduce's jobs run on a cluster of one scheduler and one node monitor, which is there already. CPU time is that of the engines' processes, and of all processes of that cluster. What is compared runs in turn, and has to make the same rows. Load is one for this program, whose engines use all cores, and the cores that other programs used meanwhile. Beyond 1.5 figures are marked: ratios of runs in turn suffer less than times. Spark's Java machines count as other programs, so figures with Spark are marked though nothing else ran, as in 4.2 and 4.3.

**Left out.** Spark where it is not installed. Naiad, PowerGraph, GraphChi, Metis and Hadoop itself: DuckDB, DataFusion and Polars (general), SciPy and Numba (graphs), pandas and plain Python (one core), Dask, and MapReduce on the cluster are in their place. Lindi's GROUP BY that is not associative (the 9 × of figure 4.6) is a flaw of a program that is not here.
"""
