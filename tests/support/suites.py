"""Which of `make test-quick`, `make test`, `make test-rest` and `make confidence` runs a test.

A test is in `test` or, if it is marked `rest`, in `rest`; or in `confidence`, if it tries a claim of the paper with
several seeds: that is needed only if simulations have come to decide otherwise (`tests/paper/confident.py`). Those of
`test` that lie in a quick room, and neither start processes nor use a cluster nor compile, are `quick`, too. Properties
(Hypothesis) are in `test` with few examples, and those that ask for many in `rest` with more; `make explore` tries all
examples of all of them.
"""

from __future__ import annotations

import re
import unittest
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings


class Suite(StrEnum):
    """What `--suite` chooses."""

    QUICK = "quick"
    TEST = "test"
    REST = "rest"
    CONFIDENCE = "confidence"
    ALL = "all"


TESTS = Path(__file__).parents[1]

QUICK_ROOMS = frozenset({"scheduler", "node_monitor", "sparrow_py"})
"""Directories of tests/ whose tests are quick, unless they say otherwise."""
COMPILED = frozenset({"scheduler/altruistic", "scheduler/flow"})
"""Directories in them that import what compiles: seconds, on a machine that has not done so before."""
OTHER_ROOMS = frozenset(
    {
        "benchmarks", "deploy", "documents", "faults", "frontends", "fuzz", "loadgen", "paper", "security",
        "simulator", "system",
    }
)  # fmt: skip
AT_THE_TOP = frozenset(
    f"test_{name}.py" for name in ("distribution", "docs", "lock", "makefile", "properties", "suites")
)
"""Tests of the repository as a whole, in tests/ itself."""

SIGN_OF_REST = re.compile(r"mark\.rest\b|rest_after|max_examples")
"""What a file of tests says that has any for `rest`."""

LIVE_FIXTURES = frozenset({"cluster", "client", "guarded"})
"""Fixtures of several modules that are made of processes."""

ONE_FILE_AT_A_TIME = (
    "tests/frontends/sql/",
    "tests/paper/altruistic/",
    "tests/paper/flow/",
    "tests/scheduler/altruistic/",
    "tests/scheduler/flow/",
    "tests/simulator/dags/",
)
"""Directories whose files share what takes long to make: one process runs them all."""
FIRST = (
    "tests/frontends/sql/",
    "tests/scheduler/flow/",
    "tests/frontends/dataflow/test_live.py",
    "tests/paper/test_5_simulation.py",
    "tests/scheduler/test_world_properties.py",
    "tests/paper/test_4_analysis.py",
    "tests/frontends/dataflow/test_commanded.py",
    "tests/simulator/test_soak.py",
    "tests/system/test_soak.py",
    "tests/system/test_early_signals.py",
    "tests/system/test_leases.py",
    "tests/simulator/test_example.py",
    "tests/security/test_confinement.py",
    "tests/simulator/test_figures.py",
    "tests/system/test_rolling_restart.py",
    "tests/benchmarks/test_flow_figures.py::test_each_figure_in_a_tiny_form[nodes]",
)
"""Files and directories that take long, the longest first: last they would leave other processes idle. A single test
has those of its file come with it, in the suites that it is in."""
AFTER_THE_FIRST = (
    "tests/benchmarks/test_altruistic.py",
    "tests/benchmarks/test_flow_",
    "tests/paper/altruistic/",
    "tests/paper/flow/",
    "tests/scheduler/altruistic/",
    "tests/simulator/dags/",
)
"""What calls kernels that tests which come first compile on a fresh clone: meanwhile it would only wait for them."""
ALONE = ("tests/faults/test_matrix.py",)
"""Files whose daemons give each other up after half a second, or have namespaces: only tests of these run meanwhile, a
few at a time (distribution.py)."""


class Part(NamedTuple):
    """How many of a property's examples a suite tries: one in so many, but so many at least."""

    one_in: int
    at_least: int


SUITES_OF_ALL = pytest.StashKey[list[tuple[frozenset[Suite], str]]]()
"""The suites and the name of each test, in a process that has collected all of them."""

FEWER_EXAMPLES = {Suite.QUICK: Part(10, 5), Suite.TEST: Part(10, 5), Suite.REST: Part(5, 6)}
"""The gate tries the same examples each time, `make test-rest` more of them than `make test`. New ones, and as many as
the property says, are what `make explore` is for."""
MANY_EXAMPLES = 150
"""A property that asks for so many, half as many again as Hypothesis tries unless told, expects that few of them come
to what it is about. Only such a one is tried again by `make test-rest`."""
SETTINGS = "_hypothesis_internal_use_settings"
"""Where Hypothesis, and its own plugin of pytest, look for what `@settings` has said."""


@cache
def room_of(path: Path) -> str:
    """The directory of tests/ in which a file lies, or its own name; `pytest.UsageError` if nobody has named it."""
    room = path.relative_to(TESTS).parts[0]
    if room not in QUICK_ROOMS | OTHER_ROOMS | AT_THE_TOP:
        raise pytest.UsageError(
            f"{path}: tests/support/suites.py does not name {room}, so no suite would run its tests"
        )
    return room


@cache
def is_compiled(path: Path) -> bool:
    """Whether a file lies in a directory whose modules compile."""
    return any(path.is_relative_to(TESTS / directory) for directory in COMPILED)


def may_have_quick_tests(path: Path) -> bool:
    """Whether a file or directory has to be looked at for `make test-quick`."""
    return TESTS.is_relative_to(path) or (path.relative_to(TESTS).parts[0] in QUICK_ROOMS and not is_compiled(path))


@cache
def may_have_rest_tests(path: Path) -> bool:
    """Whether a file or directory has to be looked at for `make test-rest`: two thirds of the files need not."""
    return not path.name.startswith("test_") or SIGN_OF_REST.search(path.read_text("utf-8")) is not None


def may_have_confident_tests(path: Path) -> bool:
    """The same for `make confidence`."""
    return TESTS.is_relative_to(path) or path.relative_to(TESTS).parts[0] == "paper"


MAY_HAVE = {
    Suite.QUICK: may_have_quick_tests,
    Suite.REST: may_have_rest_tests,
    Suite.CONFIDENCE: may_have_confident_tests,
}
"""For suites that do not even import what they leave out."""


def is_property(item: pytest.Item) -> bool:
    """Whether Hypothesis makes up what the test is tried with."""
    function = getattr(item, "obj", None)
    return bool(getattr(function, "is_hypothesis_test", False))


def starts_processes(item: pytest.Item) -> bool:
    """Whether a test says that it does, or uses a cluster."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return item.get_closest_marker("processes") is not None or not LIVE_FIXTURES.isdisjoint(fixtures)


def suites_of(item: pytest.Item) -> frozenset[Suite]:
    """The suites that run this test. One of `test`, `rest` and `confidence`, except for properties."""
    room = room_of(item.path)
    if item.get_closest_marker("confident") is not None:
        return frozenset({Suite.CONFIDENCE, Suite.ALL})
    if item.get_closest_marker("rest") is not None:
        return frozenset({Suite.REST, Suite.ALL})
    found = {Suite.TEST, Suite.ALL}
    if room in QUICK_ROOMS and not is_compiled(item.path) and not starts_processes(item):
        found.add(Suite.QUICK)
    if is_property(item) and _examples_of(item).max_examples >= MANY_EXAMPLES:
        found.add(Suite.REST)
    return frozenset(found)


def _examples_of(item: pytest.Item) -> settings:
    """What a property says of its examples."""
    holder, name = _settings_of(item)
    said: settings = getattr(holder, name)
    return said


def try_fewer_examples(item: pytest.Item, part: Part) -> None:
    """Have a property tried with a part of the examples that it says."""
    holder, name = _settings_of(item)
    usual = _examples_of(item)
    fewer = min(usual.max_examples, max(part.at_least, usual.max_examples // part.one_in))
    setattr(holder, name, settings(usual, max_examples=fewer))


def _settings_of(item: pytest.Item) -> tuple[Any, str]:
    """Which object, and by which name, has the settings of a property: a state machine's class, else the function."""
    machine = getattr(item, "cls", None)
    if machine is not None and issubclass(machine, unittest.TestCase):
        return machine, "settings"
    function = item.obj  # type: ignore[attr-defined]
    return getattr(function, "__func__", function), SETTINGS


def rest_after(count: int, *sets: Any) -> list[Any]:
    """Sets of parameters, the first of them for `make test`, all others for `make test-rest`. A list is a set of
    several, anything else a set of one."""
    values = [one if isinstance(one, list) else [one] for one in sets]
    return [
        pytest.param(*each, marks=[pytest.mark.rest] if number >= count else []) for number, each in enumerate(values)
    ]


def is_alone(nodeid: str) -> bool:
    """Whether only tests of its kind may run beside this test."""
    return nodeid.partition("::")[0] in ALONE


def turn(nodeid: str) -> int:
    """When a test runs: what takes long comes first, what runs alone last."""
    if is_alone(nodeid):
        return len(FIRST) + 2
    first = (place for place, beginning in enumerate(FIRST) if nodeid.startswith(beginning))
    return next(first, len(FIRST) + nodeid.startswith(AFTER_THE_FIRST))
