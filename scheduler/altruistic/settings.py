"""What the paper leaves open, or lets operators choose (paper 002, §3.3, §4)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from scheduler.altruistic.intra import Horizon
from scheduler.altruistic.orders import Order
from scheduler.altruistic.shares import Cap


class Lend(StrEnum):
    """What tasks that may run are given."""

    GREEDY = "greedy"
    """Whatever is free now."""
    PROFILE = "profile"
    """What is free until the task's end, beside all that jobs have planned."""


class Rank(StrEnum):
    """Whose tasks come first."""

    SRTF = "srtf"
    """Jobs with the least work left."""
    SJF = "sjf"
    """Jobs whose work is the least of all."""
    SJF_BY_PATH = "sjf-by-path"
    """Jobs whose longest path takes the least time (the paper's SJF)."""
    PACK = "pack"
    """Tasks whose demand is most like what is free."""
    TETRIS = "tetris"
    """The same, and jobs with little work left are worth as much on average."""
    DRF = "drf"
    """Jobs that have the least part of their share, a task at a time."""
    CAPACITY = "capacity"
    """Queues that have the least part of what is guaranteed to them, a task at a time; in a queue the job that came
    first. A user's jobs are in the queue of its name, others in one that has what no queue has."""


JOB_AFTER_JOB = frozenset({Rank.SRTF, Rank.SJF, Rank.SJF_BY_PATH})


TASK_AFTER_TASK = frozenset({Rank.DRF, Rank.CAPACITY})


class SettingsError(ValueError):
    """A setting cannot be; the message names the field, the value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The defaults are those of the paper's implementation (§4), but for the horizon: a job that looks at the whole of
    its rest yields more, and is no later for that (docs/altruistic.md)."""

    altruism: float = 1.0
    """P(Altruism): how likely a job is to yield what it need not have, each time it is looked at (§3.4)."""
    cap: Cap = Cap.DOMINANT
    """What a job may use, by its share."""
    order: Order = Order.TETRIS
    """Of tasks within a job, for its plan, and when it is lent room."""
    horizon: Horizon = Horizon.DAG
    must: Rank = Rank.PACK
    """Of tasks that must run."""
    may: Rank = Rank.SRTF
    """Of tasks that may."""
    lend: Lend = Lend.GREEDY
    fairness: float = 0.0
    """Of Tetris (f): only this part of the jobs fewer, those that have most of their share, are left out."""

    def __post_init__(self) -> None:
        if not 0 <= self.altruism <= 1:
            raise SettingsError(f"altruism: {self.altruism} is not valid; allowed: from 0 to 1")
        if not 0 <= self.fairness < 1:
            raise SettingsError(f"fairness: {self.fairness} is not valid; allowed: from 0, below 1")


CARBYNE = Settings()
SCHEDULERS: dict[str, Settings] = {
    "altruistic": CARBYNE,
    "drf": Settings(altruism=0.0, order=Order.BREADTH_FIRST, may=Rank.DRF),
    "tetris": Settings(altruism=0.0, may=Rank.TETRIS),
    "tetris-packing": Settings(altruism=0.0, may=Rank.PACK),
    "tetris-fair": Settings(altruism=0.0, may=Rank.TETRIS, fairness=0.9),
    "capacity": Settings(altruism=0.0, order=Order.BREADTH_FIRST, may=Rank.CAPACITY),
    "sjf": Settings(altruism=0.0, order=Order.CRITICAL_PATH, may=Rank.SJF_BY_PATH),
    "sjf-by-work": Settings(altruism=0.0, order=Order.CRITICAL_PATH, may=Rank.SJF),
    "srtf": Settings(altruism=0.0, order=Order.CRITICAL_PATH, may=Rank.SRTF),
}
"""Those that the paper compares, in one frame: without altruism `may` alone says who starts."""


def settings_named(text: str) -> Settings:
    """Of a scheduler by its name, with changes after slashes: `altruistic/horizon=dag/altruism=0.5`. Without any
    altruism `altruistic` is `drf`, but for what else is changed (paper 002, §3.4)."""
    name, *words = text.split("/")
    if name not in SCHEDULERS:
        raise SettingsError(f"policy: {name!r} is not valid; allowed: {', '.join(SCHEDULERS)}")
    changes = dict(_changed(word) for word in words)
    is_selfish = SCHEDULERS[name] is CARBYNE and changes.get("altruism") == 0
    return replace(SCHEDULERS["drf" if is_selfish else name], **changes)


def _changed(change: str) -> tuple[str, Any]:
    name, _, value = change.partition("=")
    known = {each.name: type(getattr(CARBYNE, each.name)) for each in fields(Settings)}
    if name not in known:
        raise SettingsError(f"policy: {name!r} is no setting; there are {', '.join(known)}")
    kind = known[name]
    try:
        return name, kind(value)
    except ValueError:
        allowed = ", ".join(kind) if issubclass(kind, StrEnum) else "a number"
        raise SettingsError(f"{name}: {value!r} is not valid; allowed: {allowed}") from None
