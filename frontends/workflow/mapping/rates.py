"""How fast engines are: table 3.2 of the thesis, the start of a job, and the CPU time that it takes (§3.5.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparrow_py.errors import InvalidRequest

MIB = float(2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of one engine on one machine. `InvalidRequest` if one cannot be.

    start_cold_s, start_warm_s: from the start of a job until it reads, without and with a host process that has run
    one. pull, load, push: bytes a second of reading the inputs, of bringing them into the engine's form (infinite if it
    needs none), and of writing the results. process: bytes of its inputs a second, for each operator's keyword;
    process_other: for operators that are not in it. operator_s: for each keyword what an operator takes however little
    it reads. iteration_operator_s: what each operator of a loop's body takes an iteration, however little it reads;
    iteration_factor: how many times as long as outside of a loop it takes for what it reads. cpus: CPU seconds that a
    second of a job takes. measured: whether they were measured on this machine, or are defaults.

    Bytes are those of columns in memory (`sizes.COLUMN_BYTES`), not of files.
    """

    start_cold_s: float
    start_warm_s: float
    pull_bytes_per_s: float
    push_bytes_per_s: float
    load_bytes_per_s: float = math.inf
    process_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    process_other_bytes_per_s: float
    operator_s: Mapping[str, float] = field(default_factory=dict)
    iteration_operator_s: float = 0.0
    iteration_factor: float = 1.0
    cpus: float = 1.0
    measured: bool = False

    def __post_init__(self) -> None:
        named = {
            name: getattr(self, name)
            for name in (
                "pull_bytes_per_s", "push_bytes_per_s", "load_bytes_per_s", "process_other_bytes_per_s", "cpus",
            )
        }  # fmt: skip
        named |= {f"process_bytes_per_s[{keyword}]": rate for keyword, rate in self.process_bytes_per_s.items()}
        for name, rate in named.items():
            if not rate > 0:
                raise InvalidRequest(name, rate, "a number above 0")
        fixed = {f"operator_s[{keyword}]": seconds for keyword, seconds in self.operator_s.items()}
        fixed |= {"iteration_operator_s": self.iteration_operator_s, "iteration_factor": self.iteration_factor}
        for name, number in fixed.items():
            if not 0 <= number < math.inf:
                raise InvalidRequest(name, number, "a number of 0 or more")
        if not 0 <= self.start_warm_s <= self.start_cold_s < math.inf:
            starts = (self.start_warm_s, self.start_cold_s)
            raise InvalidRequest("start_warm_s and start_cold_s", starts, "0 or more seconds, the cold one no less")

    def process(self, keyword: str) -> float:
        """Bytes of its inputs that the operator takes a second."""
        return self.process_bytes_per_s.get(keyword, self.process_other_bytes_per_s)

    def operator_seconds(self, keyword: str, bytes_in: float) -> float:
        """What an operator takes that reads so much, outside of a loop."""
        return self.operator_s.get(keyword, 0.0) + bytes_in / self.process(keyword)

    def iteration_seconds(self, keyword: str, bytes_in: float) -> float:
        """What an operator of a loop's body takes in an iteration."""
        return self.iteration_operator_s + self.iteration_factor * bytes_in / self.process(keyword)


def _default(
    cold_s: float, warm_s: float, read: float, load: float, write: float, process: float, cpus: float
) -> Rates:
    """All but the starts and the CPUs in MiB a second."""
    return Rates(
        start_cold_s=cold_s,
        start_warm_s=warm_s,
        pull_bytes_per_s=read * MIB,
        load_bytes_per_s=load * MIB,
        push_bytes_per_s=write * MIB,
        process_other_bytes_per_s=process * MIB,
        cpus=cpus,
    )


DEFAULT_RATES: dict[str, Rates] = {
    "duckdb": _default(0.3, 0.02, 800, math.inf, 200, 800, 2),
    "datafusion": _default(0.3, 0.02, 800, math.inf, 200, 600, 2),
    "polars": _default(0.4, 0.02, 800, math.inf, 200, 700, 2),
    "pandas": _default(0.8, 0.02, 400, 200, 100, 100, 1),
    "dask": _default(1.5, 0.1, 300, 200, 100, 80, 2),
    "pyspark": _default(10, 0.5, 200, 200, 80, 100, 2),
    "pyspark_rdd": _default(10, 0.5, 20, math.inf, 10, 8, 2),
    "mapreduce": _default(1.0, 0.3, 200, 200, 80, 60, 2),
    "scipy": _default(0.6, 0.02, 400, 50, 100, 400, 1),
    "numba": _default(2.0, 0.05, 400, 50, 100, 600, 1),
    "serial": _default(0.3, 0.02, 20, math.inf, 10, 5, 1),
}
"""Guesses about a machine of two cores, to plan with until it is calibrated; none was measured there."""
UNKNOWN_ENGINE = _default(1.0, 0.1, 200, math.inf, 100, 100, 1)
"""Of an engine without any."""


def default_rates(engine: str) -> Rates:
    """What is assumed of an engine that was not measured here."""
    return DEFAULT_RATES.get(engine, UNKNOWN_ENGINE)
