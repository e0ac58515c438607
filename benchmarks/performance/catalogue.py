"""The benchmarks that run in turn, by the names that results have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Benchmark:
    """A command that makes a report. arguments: what it is given beside `--json` and `--repeat`."""

    module: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """As it is typed."""
        return " ".join(["python -m", self.module, *self.arguments])


_PLAIN = (
    "cpu_per_task", "latency", "actor_calls", "hosted", "throughput", "startup", "turns", "submit_path", "memory",
    "dag", "failover", "blobs", "demo_overhead", "simulator", "full_machines", "sql_engine", "hops",
)  # fmt: skip
BENCHMARKS = {name: Benchmark(f"benchmarks.{name}") for name in _PLAIN} | {
    "hops-one": Benchmark("benchmarks.hops", ("--processes", "one"))
}
"""In the order in which they run."""
