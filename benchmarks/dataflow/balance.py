"""How partitions are balanced: the controller's and the workers' cores in virtual time (`virtual.py`).

Figures 7 and 8 of Canary: some tasks take twice as long as others, or one worker is half as fast as the others, and a
stage has 1 to 16 partitions a worker. The work of an iteration is the same whatever the number of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import median

from benchmarks.dataflow.virtual import VirtualCluster

WORK_S = 0.1
"""Of an iteration, for each worker, if all is even."""
BEFORE_S = (0.2, 0.9)
"""When no partition has moved yet: the load has to be uneven at two looks."""
AFTER_S = (5.0, 10.0)
BESIDE_BEST_MAX = 1.15
"""The aim: iterations after 5 s beside those of the best placement."""
PER_WORKER = (1, 2, 4, 8, 16)
SLOW_WORKER, UNEVEN = "a slow worker", "uneven partitions"
SLOW = 2.0
"""How many times as long tasks take at a slow worker, and those of the slowest partition beside the fastest."""


def best_s(costs: Sequence[float], slowness: Sequence[float]) -> float:
    """How long an iteration takes if partitions are placed one by one, the dearest first, where they end first.

    The best there is if all cost the same, or all workers are alike and few partitions cost more than the others.
    """
    load = [0.0] * len(slowness)
    for cost in sorted(costs, reverse=True):
        worker = min(range(len(load)), key=lambda worker: load[worker] + cost * slowness[worker])
        load[worker] += cost * slowness[worker]
    return max(load)


def measured(costs: Sequence[float], slowness: Sequence[float], noise: float = 0.0, seed: int = 0) -> dict[str, float]:
    """What came of ten seconds: seconds an iteration, moves. Each task takes up to `noise` of its cost more or less."""
    chance = Random(seed)

    def cost_s(worker: int, partition: int) -> float:
        return costs[partition] * slowness[worker] * (1 + noise * chance.uniform(-1, 1))

    cluster = VirtualCluster(len(slowness), len(costs), cost_s, size_bytes=1 << 20)
    cluster.run(AFTER_S[1])
    before_s, after_s, best = cluster.iteration_s(*BEFORE_S), cluster.iteration_s(*AFTER_S), best_s(costs, slowness)
    return {"before_s": before_s, "after_s": after_s, "best_s": best, "moves": cluster.moves}


def _row(
    load: str, workers: int, per_worker: int, runs: Sequence[dict[str, float]], single_s: float | None
) -> dict[str, object]:
    after_s = median(run["after_s"] for run in runs)
    return {
        "load": load,
        "workers": workers,
        "partitions a worker": per_worker,
        "moves": int(median(run["moves"] for run in runs)),
        "before (ms)": median(run["before_s"] for run in runs) * 1e3,
        "after 5 s (ms)": after_s * 1e3,
        "beside the best": median(run["after_s"] / run["best_s"] for run in runs),
        "worst run": max(run["after_s"] / run["best_s"] for run in runs),
        "beside 1 a worker": None if single_s is None else after_s / single_s,
    }


def _costs(partitions: int, workers: int, shares: Sequence[float]) -> list[float]:
    """Costs in proportion to these, whose mean is that of even work."""
    return [share * WORK_S * workers / partitions for share in shares]


def dear_rows(repeat: int) -> list[dict[str, object]]:
    """One partition costs 4 times as much as the others."""
    rows = []
    for workers in (2, 4, 8):
        for per_worker in (2, 4, 8):
            count = workers * per_worker
            runs = []
            for seed in range(repeat):
                shares = [1.0] * count
                shares[Random(seed).randrange(count)] = 4.0
                runs.append(measured(_costs(count, workers, shares), [1.0] * workers, noise=0.05, seed=seed))
            rows.append(_row("one costs 4 times", workers, per_worker, runs, None))
    return rows


def even_rows(repeat: int) -> list[dict[str, object]]:
    """All cost the same, but for noise. `moves` is the most of all runs here."""
    rows = []
    for noise in (0.0, 0.1, 0.3):
        for per_worker in (1, 4, 8):
            count = 4 * per_worker
            runs = [
                measured(_costs(count, 4, [1.0] * count), [1.0] * 4, noise=noise, seed=seed) for seed in range(repeat)
            ]
            row = _row(f"even, ± {noise:.0%} a task", 4, per_worker, runs, None)
            rows.append({**row, "moves": max(run["moves"] for run in runs)})
    return rows


def paper_rows(
    repeat: int, workers: int = 8, many: Sequence[int] = PER_WORKER, loads: Sequence[str] = (SLOW_WORKER, UNEVEN)
) -> list[dict[str, object]]:
    """A slow worker, and partitions of which the slowest takes twice as long as the fastest, by partitions a worker."""
    rows = []
    for load in loads:
        single_s = None
        for per_worker in many:
            count = workers * per_worker
            runs = []
            for seed in range(repeat):
                chance = Random(seed)
                slowness, shares = [1.0] * workers, [1.0] * count
                if load == SLOW_WORKER:
                    slowness[chance.randrange(workers)] = SLOW
                else:
                    shares = [chance.uniform(2 / (1 + SLOW), 2 * SLOW / (1 + SLOW)) for _ in range(count)]
                runs.append(measured(_costs(count, workers, shares), slowness, noise=0.02, seed=seed))
            single_s = single_s or median(run["after_s"] for run in runs)
            rows.append(_row(load, workers, per_worker, runs, single_s))
    return rows


def rows(repeat: int = 10) -> list[dict[str, object]]:
    """A row for each load and number of partitions; medians of `repeat` seeds."""
    return [*dear_rows(repeat), *even_rows(repeat), *paper_rows(repeat)]
