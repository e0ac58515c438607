"""How Hypothesis tries properties: a gate judges the change, not luck; `make explore` tries what nobody has tried.

Of the gate each property is tried with the same examples each time, whatever runs before it or beside it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

GATE, EXPLORE = "gate", "explore"
"""Profiles: the usual one, and that of `--hypothesis-profile explore`."""


def register_profiles() -> None:
    """Have both, and use that of the gate. A busy machine is no reason for a property to fail."""
    for name in (EXPLORE, GATE):
        settings.register_profile(
            name,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
            derandomize=name == GATE,
            print_blob=True,
        )
    settings.load_profile(GATE)


def is_of_the_gate() -> bool:
    """Whether this run has the profile of the gate."""
    return bool(settings().derandomize)


def draw_the_same_whatever_is_loaded() -> None:
    """To be called when the profile is known. Hypothesis also draws constants that it finds in the source of all loaded
    modules: then any change of any file, and any test that imports one more, would change the gate's examples."""
    if is_of_the_gate():
        providers._get_local_constants = lambda: providers._local_constants
