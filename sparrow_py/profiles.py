"""Profiles: the settings of Sparrow as its paper prints it, and the default settings.

Schedulers, node monitors, jobs, the simulator and the load generator all read this table. `paper` is §3 of the paper
and no more: a reservation is served for the job that it was made for, nodes do not say that they are idle, no task is
sent to a node that has not asked, reservations that nobody can use are neither passed on nor cancelled (§8 only
proposes that), and schedulers do not raise the probe ratio. No profile sets the probe ratio d itself: that is the
job's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sparrow_py.errors import InvalidOption

PAPER, DEFAULT = "paper", "default"
SCHEDULER, NODE_MONITOR, JOB = "scheduler", "node_monitor", "job"
"""The rooms: each part of the table has the options of one of them."""

PROFILES: dict[str, dict[str, dict[str, Any]]] = {
    PAPER: {
        SCHEDULER: {
            "order": "reserved",
            "probe_sharing": False,
            "push_to_idle": False,
            "cancellation": False,
            "probe_ratio_max": 0.0,
        },
        NODE_MONITOR: {"report_idle": False},
        JOB: {"prefetch": 0},
    },
    DEFAULT: {
        SCHEDULER: {
            "order": "shortest",
            "probe_sharing": True,
            "push_to_idle": True,
            "cancellation": True,
            "probe_ratio_max": 0.0,
        },
        NODE_MONITOR: {"report_idle": True},
        JOB: {"prefetch": 0},
    },
}
"""The values by profile, room and option. Those of `default` are the defaults of the options, and may be changed one by
one; those of any other profile are fixed."""


def check_profile(name: str) -> str:
    """`name`, if there is such a profile; else `InvalidOption`."""
    if name not in PROFILES:
        raise InvalidOption("profile", name, ", ".join(PROFILES))
    return name


def settings(profile: str, *rooms: str) -> dict[str, Any]:
    """The profile's options in these rooms, with their values."""
    of_rooms = PROFILES[check_profile(profile)]
    return {name: value for room in rooms for name, value in of_rooms[room].items()}


def completed(profile: str, rooms: Iterable[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The profile's options in these rooms, with the values that were given in place of the profile's; `InvalidOption`
    if one of these contradicts the profile."""
    wanted = settings(profile, *rooms)
    stated = {name: given[name] for name in wanted if name in given}
    check_values(profile, rooms, stated)
    return wanted | stated


def check_values(profile: str, rooms: Iterable[str], values: Mapping[str, Any]) -> None:
    """`InvalidOption`, which names option and profile, for the first of these values that contradicts the profile."""
    wanted = settings(profile, *rooms)
    for name, value in values.items():
        if profile != DEFAULT and name in wanted and value != wanted[name]:
            raise InvalidOption(name, value, f"{wanted[name]!r} with profile {profile!r}")


def profile_of(values: Mapping[str, Any], *rooms: str) -> str:
    """The profile whose options in these rooms all have these values; "" if there is none."""
    return next((name for name in PROFILES if settings(name, *rooms).items() <= values.items()), "")


def in_words(names: Iterable[str]) -> str:
    """These profiles, each once, as words for a title."""
    distinct = list(dict.fromkeys(names))
    return f"profile{'s' * (len(distinct) > 1)} {' and '.join(distinct)}"
