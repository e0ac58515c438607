"""The content of a report, before it is drawn: points with their figures, groups of points, and words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from loadgen import measures
from loadgen.measures import Figures, Spans
from loadgen.recorded import EXECUTED, Point, Run, Settings
from sparrow_py.profiles import DEFAULT, PAPER

PLACEMENTS = {
    "sparrow": "Sparrow",
    "batch": "batch sampling",
    "per-task": "per-task sampling",
    "random": "random",
    "central": "central",
}
"""Names for people; the place of each is its colour; others have the colours after these."""

SPARROW_COLOURS = {DEFAULT: 0, PAPER: 6}
"""Of Sparrow's profiles; the placements besides it have others."""

POLICIES = {
    "sparrow": "sampling",
    "flow": "policy flow",
    "altruistic": "policy altruistic",
    "auto": "long jobs by policy flow",
    "drf": "DRF",
    "tetris": "Tetris",
    "tetris-packing": "Tetris, packing alone",
    "tetris-fair": "Tetris, fair",
    "capacity": "capacity",
    "sjf": "SJF by path",
    "sjf-by-work": "SJF by work",
    "srtf": "SRTF",
}
"""Names of the policies that jobs state, and of the schedulers that the altruistic plane may have instead; the place of
each is its colour; others have the colours after these."""

WAYS = ("placement", "profile", "policy")
"""The settings that say how tasks are placed: points that differ in these alone are compared side by side, by name."""

SETTING_NAMES = {"load": "load", "probe_ratio": "d", "duration_ms": "task ms", "placement": "placement"}
"""Short names of settings on the page; the others have their own names."""

CONSEQUENT = ("jobs", "service", "stretch")
"""Settings that follow from others: points that differ in these alone are of one curve."""

NAME_CHARS_MAX = 40
"""Characters of a label, user or stage that are shown."""


@dataclass(frozen=True)
class Shown:
    """A point with its records and figures. `name`: the name of its curve. `colour`: the number of its colour."""

    point: Point
    settings: Settings
    run: Run
    spans: Spans
    figures: Figures
    name: str
    colour: int


@dataclass(frozen=True)
class Group:
    """Points that differ only in how tasks are placed. `title`: the settings that tell it from other groups."""

    title: str
    points: tuple[Shown, ...]

    @cached_property
    def labels(self) -> list[str]:
        """The labels of jobs, without the empty one."""
        return in_order({label for shown in self.points for label in shown.figures["by_label"] if label})

    @cached_property
    def users(self) -> list[str]:
        """The users who submitted jobs, measured or not."""
        return in_order({user for shown in self.points for user in shown.figures["by_user"]})

    @cached_property
    def stages(self) -> list[tuple[str, str]]:
        """Labels and names of stages, where a job has several."""
        found = {
            (label, stage): None
            for shown in self.points
            for label, stages in shown.figures["by_stage"].items()
            if len(stages) > 1
            for stage in stages
        }
        return [kind for label in in_order({label for label, _ in found}) for kind in found if kind[0] == label]

    def times(self, shown: Shown, kind: str, name: str) -> Figures | None:
        """The figures of a label ("by_label") or user ("by_user") at one of the points, if it has any."""
        found: Figures | None = shown.figures[kind].get(name)
        return found

    def beside_reference(self, shown: Shown) -> Figures | None:
        """How many times as long jobs took at the reference, job by job."""
        if self.reference is None:
            return None
        return measures.job_by_job(self.reference.run.jobs, shown.run.jobs)

    @cached_property
    def execution(self) -> str:
        """What tasks of queries did, as a sentence; empty if no point says it."""
        said = {
            f"{shown.settings.execution}, {_stretched(shown.settings)}": None
            for shown in self.points
            if shown.settings.execution
        }
        return "; ".join(said)[:1].upper() + "; ".join(said)[1:] + "." if said else ""

    @cached_property
    def reference(self) -> Shown | None:
        """Sparrow's point, where there are others to compare it with; of several profiles the first."""
        own = [shown for shown in self.points if shown.settings.placement == "sparrow"]
        distinct = len({(shown.settings.profile, shown.settings.policy) for shown in own}) == len(own)
        return own[0] if own and distinct and len(self.points) > 1 else None

    def tail_over_reference(self, shown: Shown) -> float | None:
        """The point's p95 over that of the reference."""
        if self.reference is None or not self.reference.figures["p95"] or shown.figures["p95"] is None:
            return None
        return float(shown.figures["p95"] / self.reference.figures["p95"])


def _stretched(settings: Settings) -> str:
    if settings.execution == EXECUTED:
        return "for as long as they took"
    return "not stretched" if settings.stretch == 1 else f"stretched {settings.stretch:.3g} times"


def all_shown(run: Run) -> list[Shown]:
    """Each point with its figures."""
    found = []
    every = [point.known_settings() for point in run.header.points]
    profiles = {settings.profile for settings in every}
    policies = list(dict.fromkeys([*POLICIES, *(settings.policy for settings in every if settings.policy)]))
    for point, settings in zip(run.header.points, every, strict=True):
        own = run.of(point.point)
        figures = measures.figures(
            own.jobs, own.tasks, slots=settings.nodes * settings.slots, counts=point.counts, cpu_s=point.cpu_s
        )
        if settings.policy:
            name, colour = _policy_name(settings.policy), policies.index(settings.policy)
        else:
            name, colour = _way(settings, named=profiles != {DEFAULT})
        spans = measures.spans(own.jobs, own.tasks)
        found.append(Shown(point, settings, own, spans, figures, name, colour))
    return found


def _policy_name(policy: str) -> str:
    """With its settings, if it has some: `altruistic/horizon=barrier`."""
    name, *changes = policy.split("/")
    return text(", ".join([POLICIES.get(name, name), *changes]))


def _way(settings: Settings, *, named: bool) -> tuple[str, int]:
    """Name and colour of the way in which tasks are placed; Sparrow's profile is part of it, if it is to be named."""
    placement = settings.placement
    if placement == "sparrow":
        name = f"{PLACEMENTS[placement]} ({text(settings.profile)})" if named else PLACEMENTS[placement]
        return name, SPARROW_COLOURS.get(settings.profile, 0)
    colour = list(PLACEMENTS).index(placement) if placement in PLACEMENTS else len(PLACEMENTS)
    return PLACEMENTS.get(placement, text(placement)), colour


def grouped(points: Sequence[Shown]) -> list[Group]:
    """Groups of points that share all settings but placement and profile. Random placement has no d: it is in every
    group."""
    groups: dict[str, list[Shown]] = {}
    random = [shown for shown in points if shown.settings.placement == "random"]
    for shown in points:
        if shown not in random:
            groups.setdefault(_settings_key(shown, *WAYS), []).append(shown)
    for shown in random:
        fitting = [
            members
            for members in groups.values()
            if _settings_key(members[0], *WAYS, "probe_ratio") == _settings_key(shown, *WAYS, "probe_ratio")
        ]
        for members in fitting or [groups.setdefault(_settings_key(shown, *WAYS), [])]:
            members.append(shown)
    differing = [name for name in varying(points) if name not in WAYS]
    return [Group(described(members[0], differing), _with_distinct_names(members)) for members in groups.values()]


def _settings_key(shown: Shown, *without: str) -> str:
    settings = {name: value for name, value in shown.point.settings.items() if name not in without}
    return json.dumps(settings, sort_keys=True, default=str)


def _with_distinct_names(members: Sequence[Shown]) -> tuple[Shown, ...]:
    """The points; those of the same placement get their numbers into their names, and colours of their own."""
    names = [shown.name for shown in members]
    if len(set(names)) == len(names):
        return tuple(members)
    return tuple(
        replace(shown, name=f"{shown.name}, point {shown.point.point}", colour=number)
        for number, shown in enumerate(members)
    )


def varying(points: Sequence[Shown]) -> list[str]:
    """The settings in which the points differ, those with short names first."""
    names = list(dict.fromkeys([*SETTING_NAMES, *(name for shown in points for name in shown.point.settings)]))
    return [name for name in names if len({written(shown.point.settings.get(name)) for shown in points}) > 1]


def common(points: Sequence[Shown]) -> dict[str, str]:
    """The settings that all points share, as text."""
    differing = set(varying(points))
    return {
        name: written(value)
        for name, value in points[0].point.settings.items()
        if name not in differing and value is not None
    }


def described(shown: Shown, names: Iterable[str]) -> str:
    """These settings of a point, as text."""
    return " · ".join(f"{SETTING_NAMES.get(name, name)} = {written(shown.point.settings.get(name))}" for name in names)


def written(value: Any) -> str:
    """A setting as text."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:g}" if abs(value) < 1e6 else str(value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


# ---- words and numbers -----------------------------------------------------------------------


def in_order(names: Iterable[str]) -> list[str]:
    """The names sorted as people do, by the numbers in them: q3 before q12."""

    def key(name: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]

    return sorted(names, key=key)


def text(name: str) -> str:
    """A label, user or stage as it is shown: printable, and not too long."""
    printable = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    return printable if len(printable) <= NAME_CHARS_MAX else printable[: NAME_CHARS_MAX - 1] + "…"


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many digits after the point; a dash for None."""
    return "–" if value is None else f"{value:,.{digits}f}"


def whole(value: float | None) -> str:
    """A count."""
    return "–" if value is None else f"{value:,.0f}"


def ms(value: float | None) -> str:
    """Milliseconds, with more digits the smaller they are."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def percent(value: float | None) -> str:
    """A share as percents."""
    return "–" if value is None else f"{value * 100:.1f} %"


def cpu_us_per_task(figures: Mapping[str, Any]) -> float | None:
    """CPU time per task of schedulers and node monitors: what scheduling costs, the generators left out."""
    used = [value for kind, value in figures["cpu_us_per_task"].items() if kind != "generators" and value is not None]
    return sum(used) if used else None
