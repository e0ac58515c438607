"""What was aimed at, and by how much that was met or missed: at the medians over seeds."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.flow.outcome import Target

Figures = Mapping[str, float]
Medians = Mapping[str, Figures]
"""By `label/row`."""

FACTOR_MIN = 1.35
BELOW_MAX = 0.04
JAIN_LOSS_MAX = 0.05


def least(text: str, value: float, limit: float) -> Target:
    """At least so much."""
    return Target(text, f"{value:.3f}" + _short(limit - value), value >= limit)


def most(text: str, value: float, limit: float) -> Target:
    """At most so much."""
    return Target(text, f"{value:.3f}" + _short(value - limit), value <= limit)


def _short(by: float) -> str:
    return f" ({by:.3f} off)" if by > 0 else ""


def of_offline(medians: Medians) -> list[Target]:
    """All of one setting, the default."""
    ours, drf, srtf = _three(medians, "tpcds")
    if not ours or not drf:
        return []
    targets = [
        least("mean completion time of DRF over ours: at least 1.35", ours["factor_of_means"], FACTOR_MIN),
        most("makespan over DRF's: at most 1", ours["makespan_s"] / drf["makespan_s"], 1.0),
        most("part of jobs below 0.8 of DRF's: at most 0.04", ours["below_0.8"], BELOW_MAX),
        most("Jain's index below DRF's: by at most 0.05", drf["jain"] - ours["jain"], JAIN_LOSS_MAX),
    ]
    if srtf:
        text = "the bound: mean completion time of DRF over that of SRTF by work, at least 1.35"
        targets.append(least(text, srtf["factor_of_means"], FACTOR_MIN))
    return targets


def of_online(medians: Medians) -> list[Target]:
    """What the paper says of TPC-DS-like jobs that arrive."""
    ours, drf, _ = _three(medians, "tpcds")
    tetris, sjf = medians.get("tpcds/tetris"), medians.get("tpcds/sjf")
    if not ours or not drf:
        return []
    targets = [
        least("factor over DRF, mean: the paper's 1.36", ours["factor"], 1.36),
        least("factor over DRF, p95: the paper's 1.88", ours["factor_p95"], 1.88),
        most("Jain's index below DRF's: the paper's 0.06", drf["jain"] - ours["jain"], 0.06),
    ]
    if sjf:
        targets.append(most("mean completion time over SJF's: the paper's 1.2", ours["mean_s"] / sjf["mean_s"], 1.2))
    if tetris:
        text = "makespan over Tetris': the paper's 1.07"
        targets.append(most(text, ours["makespan_s"] / tetris["makespan_s"], 1.07))
    return targets


def of_single_jobs(medians: Medians) -> list[Target]:
    """Jobs that are slower than under DRF."""
    ours = medians.get("tpcds/altruistic")
    if not ours or "slower" not in ours:
        return []
    return [
        most("part of jobs slower than under DRF: the paper's 0.16", ours["slower"], 0.16),
        least("the slowest of them: the paper's 0.62", ours["worst"], 0.62),
        most("part of jobs below 0.8: at most 0.04", ours["below_0.8"], BELOW_MAX),
    ]


def of_leftovers(medians: Medians) -> list[Target]:
    """Of production-like jobs, or of TPC-DS-like ones if these are all."""
    label = "production" if any(name.startswith("production/") for name in medians) else "tpcds"
    ours = medians.get(f"{label}/altruistic")
    if not ours or "leftover_20" not in ours:
        return []
    return [
        least("20 % left over: at least half of the time", ours["leftover_20"], 0.5),
        least("correlation with barriers: the paper's 0.75", ours["with_barriers"], 0.75),
    ]


def of_tetris_fair(medians: Medians) -> list[Target]:
    """Beside Tetris with f = 0.9."""
    ours, fair = medians.get("tpcds/altruistic"), medians.get("tpcds/tetris-fair")
    if not ours or not fair or "factor" not in ours:
        return []
    return [
        least("Jain's index above Tetris-fair's: the paper's 0.05", ours["jain"] - fair["jain"], 0.05),
        least("factor over Tetris-fair, mean: the paper's 1.22", ours["factor"], 1.22),
        least("makespan of Tetris-fair over ours: the paper's 1.06", fair["makespan_s"] / ours["makespan_s"], 1.06),
    ]


def of_frontier(medians: Medians) -> list[Target]:
    """The best of those settings that are nearly as fair as DRF."""
    drf = next((figures for name, figures in medians.items() if name.endswith("/drf")), None)
    settings = {name.split("/", 1)[1]: figures for name, figures in medians.items() if "/altruistic" in name}
    if drf is None or not settings:
        return []
    fair = {name: each for name, each in settings.items() if drf["jain"] - each["jain"] <= JAIN_LOSS_MAX}
    text = "the best factor of means with Jain's index at most 0.05 below DRF's: at least 1.35"
    if not fair:
        nearest = max(settings, key=lambda name: settings[name]["jain"])
        off = drf["jain"] - settings[nearest]["jain"]
        return [Target(text, f"no setting is so fair; `{nearest}` is {off:.3f} below", False)]
    best = max(fair, key=lambda name: fair[name]["factor_of_means"])
    found = least(text, fair[best]["factor_of_means"], FACTOR_MIN)
    return [Target(text, f"{found.ours} with `{best}`", found.met)]


def _three(medians: Medians, label: str) -> tuple[Figures, Figures, Figures]:
    """Ours, DRF's, SRTF's; empty if there are none."""
    ours, drf, srtf = (medians.get(f"{label}/{name}", {}) for name in ("altruistic", "drf", "srtf"))
    return (ours if "factor" in ours else {}), drf, srtf
