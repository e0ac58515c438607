"""How an altruistic plane begins: which scheduler it plays, and what must be there for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrow_py.daemon.options import parse_pairs
from sparrow_py.distribution import install_command
from sparrow_py.errors import ClusterError, InvalidOption

if TYPE_CHECKING:
    from scheduler.altruistic.shares import Queue
    from scheduler.altruistic.stage_history import StageHistory
    from scheduler.options import SchedulerOptions
    from scheduler.plane import BookForPlane, Plane

EXTRA = "flow"
"""The extra that has numpy, and numba besides, with which it decides much faster."""


def altruistic_plane(options: SchedulerOptions, history: StageHistory | None = None) -> Callable[[BookForPlane], Plane]:
    """What makes the plane; `ClusterError` or `InvalidOption`, in one line, if it cannot be."""
    if importlib.util.find_spec("numpy") is None:
        raise ClusterError(f"policy altruistic needs the package numpy; it comes with {install_command(EXTRA)}")
    from scheduler.altruistic.plane import AltruisticPlane
    from scheduler.altruistic.settings import Rank, SettingsError, settings_named
    from scheduler.altruistic.stage_history import StageHistory

    try:
        settings = settings_named(options.altruistic_policy)
    except SettingsError as error:
        raise InvalidOption.told("altruistic_policy", f"altruistic_policy: {error}") from None
    queues = _queues(options.altruistic_queue)
    if queues and settings.may is not Rank.CAPACITY:
        allowed = "nothing but with altruistic_policy=capacity"
        raise InvalidOption("altruistic_queue", ", ".join(options.altruistic_queue), allowed)
    kept = StageHistory() if history is None else history
    return lambda book: AltruisticPlane(book, settings, kept, queues)


def _queues(stated: tuple[str, ...]) -> dict[str, Queue]:
    """By user; `InvalidOption` if they cannot be, each or together."""
    from scheduler.altruistic.shares import Queue, Queues

    queues: dict[str, Queue] = {}
    for user, text in parse_pairs("altruistic_queue", stated).items():
        part, _, most = text.partition(":")
        try:
            queues[user] = Queue(float(part), float(most or 1))
        except ValueError as error:
            why = f"PART or PART:MOST, parts of the cluster ({error})"
            raise InvalidOption("altruistic_queue", f"{user}={text}", why) from None
    try:
        Queues(queues)
    except ValueError as error:
        raise InvalidOption("altruistic_queue", ", ".join(stated), f"parts up to 1 in all ({error})") from None
    return queues
