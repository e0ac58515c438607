"""Of the gate a property is tried with the same examples each time; to explore, with new ones."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.support.properties import EXPLORE, GATE, draw_the_same_whatever_is_loaded
from tests.support.suites import FEWER_EXAMPLES, Part, Suite, try_fewer_examples

ROOT = Path(__file__).parents[1]


class Machine(RuleBasedStateMachine):
    @rule()
    def nothing(self) -> None:
        """Happens."""


class Item(SimpleNamespace):
    """As much of a test as is asked for."""

    obj: Any
    cls: type | None = None


def test_the_gate_leaves_nothing_to_luck_and_exploring_does() -> None:
    assert settings.get_profile(GATE).derandomize
    assert not settings.get_profile(EXPLORE).derandomize


@pytest.mark.parametrize("profile", [GATE, EXPLORE])
@pytest.mark.parametrize("part", FEWER_EXAMPLES.values(), ids=FEWER_EXAMPLES)
@pytest.mark.parametrize("few", [False, True])
def test_the_gate_tries_a_part_of_the_examples_and_changes_nothing_else(profile: str, part: Part, few: bool) -> None:
    count = 3 if few else part.one_in * (part.at_least + 1)
    usual = settings(settings.get_profile(profile), max_examples=count)

    @usual
    @given(st.integers())
    def holds(number: int) -> None:
        """Always."""

    machine = Machine.TestCase
    machine.settings = usual
    for item in (Item(obj=holds), Item(obj=machine("runTest").runTest, cls=machine)):
        try_fewer_examples(item, part)  # type: ignore[arg-type]
    fewer = settings(usual, max_examples=min(count, part.at_least + 1))
    assert repr(holds._hypothesis_internal_use_settings) == repr(fewer)  # type: ignore[attr-defined]
    assert repr(machine.settings) == repr(fewer)


def test_make_test_rest_tries_more_than_make_test() -> None:
    test, rest = FEWER_EXAMPLES[Suite.TEST], FEWER_EXAMPLES[Suite.REST]
    assert rest.one_in < test.one_in and rest.at_least > test.at_least


CONSTANTS = f"NUMBERS = {[1_000_003 + 7_919 * number for number in range(500)]}"


def examples_of_the_gate() -> list[list[int]]:
    tried = []

    @settings(settings.get_profile(GATE))
    @given(st.lists(st.integers(0, 10**7)))
    def holds(numbers: list[int]) -> None:
        tried.append(numbers)

    holds()
    return tried


def test_examples_do_not_depend_on_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_the_same_whatever_is_loaded()
    before = examples_of_the_gate()
    (tmp_path / "constants_of_a_module.py").write_text(CONSTANTS)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("constants_of_a_module")
    assert examples_of_the_gate() == before
    assert len(before) > 50


CONFTEST = """
from tests.support.properties import register_profiles

register_profiles()
"""
PROPERTY = """
from hypothesis import given, settings, strategies as st

@given(st.integers())
def test_property(number):
    assert not settings().derandomize
"""
PLUGINS = ("xdist", "_hypothesis_pytestplugin", "no:cacheprovider")


@pytest.mark.rest
def test_processes_that_run_tests_have_the_profile_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_property.py").write_text(PROPERTY)
    plugins = [option for plugin in PLUGINS for option in ("-p", plugin)]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", *plugins, "--hypothesis-profile", EXPLORE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout
