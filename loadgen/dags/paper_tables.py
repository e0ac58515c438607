"""What paper 002 says of the jobs of its workloads: tables 1 and 2, as far as our text of it has them."""

from __future__ import annotations

from dataclasses import dataclass

DEPTH = 5
"""Stages of the critical path, in the median of all workloads (§2.2)."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, and the 95th percentile."""

    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A workload's row of table 1. input_work: the part of the work in stages that read the job's input."""

    stages: Spread
    barriers: Spread
    input_work: Spread


TPCDS, TPCH, BIGBENCH, PRODUCTION = "tpcds", "tpch", "bigbench", "production"
TABLE: dict[str, PaperRow] = {
    PRODUCTION: PaperRow(Spread(13, 121), Spread(4, 13), Spread(0.34, 0.85)),
    TPCDS: PaperRow(Spread(8, 23), Spread(1, 4), Spread(0.11, 0.88)),
    TPCH: PaperRow(Spread(8, 12), Spread(2, 4), Spread(0.46, 0.82)),
    BIGBENCH: PaperRow(Spread(7, 19), Spread(2, 6), Spread(0.24, 0.70)),
}
"""Production is Microsoft's."""
