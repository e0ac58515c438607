"""Each test is run by `make test`, by `make test-rest` or by `make confidence`: none is lost, and none is run twice but
properties that ask for many examples."""

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import conftest
from tests.support import suites
from tests.support.properties import EXPLORE
from tests.support.suites import SUITES_OF_ALL, Suite, is_alone, may_have_quick_tests, rest_after, room_of

ROOT = Path(__file__).parents[1]


TELL_SUITES = """
import sys
import pytest

class Told:
    def pytest_collection_modifyitems(self, items):
        from tests.support.suites import suites_of  # Not before pytest has begun: it is to rewrite what that imports.

        for item in items:
            print("suites", ",".join(sorted(suites_of(item))), item.nodeid)

sys.exit(pytest.main(sys.argv[1:], plugins=[Told()]))
"""
"""Prints the suites of each test, of all tests that are collected."""


def collected(*options: str) -> list[tuple[frozenset[Suite], str]]:
    """The suites and the name of each test that a run with these options collects."""
    command = [sys.executable, "-c", TELL_SUITES, "-p", "no:cacheprovider", "-n", "0", "--collect-only", "-q"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=True)
    told = [line.split(" ", 2)[1:] for line in done.stdout.splitlines() if line.startswith("suites ")]
    return [(frozenset(map(Suite, suites.split(","))), name) for suites, name in told]


@pytest.mark.timeout(600)
def test_each_test_is_in_one_suite_and_properties_of_many_examples_are_in_two(pytestconfig: pytest.Config) -> None:
    """In `make test` this process has collected all tests; else another one does."""
    tests = pytestconfig.stash.get(SUITES_OF_ALL, None) or collected("--suite", Suite.ALL)
    of = {suite: Counter(name for found, name in tests if suite in found) for suite in Suite}
    assert len(of[Suite.ALL]) > 5000
    assert set(of[Suite.TEST]) | set(of[Suite.REST]) | set(of[Suite.CONFIDENCE]) == set(of[Suite.ALL])
    assert of[Suite.CONFIDENCE] and not set(of[Suite.CONFIDENCE]) & (set(of[Suite.TEST]) | set(of[Suite.REST]))
    both = set(of[Suite.TEST]) & set(of[Suite.REST])
    assert 0 < len(both) < len(of[Suite.ALL]) / 20
    assert {name for name in both if "test_messages" in name or "properties" in name}
    assert set(of[Suite.QUICK]) < set(of[Suite.TEST])
    assert len(of[Suite.QUICK]) > 2000
    assert max(of[Suite.ALL].values()) == 1
    # Suites that do not even import what they leave out import all that they run.
    for suite, may_have in suites.MAY_HAVE.items():
        files = {ROOT / name.partition("::")[0] for name in of[suite]}
        assert all(may_have(path) and all(map(may_have, path.parents)) for path in files)
        assert len(files) < len(list(suites.TESTS.rglob("test_*.py"))) / 2


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_the_makefile_runs_the_suites() -> None:
    targets = {"test": Suite.TEST, "test-rest": Suite.REST, "test-quick": Suite.QUICK, "confidence": Suite.CONFIDENCE}
    for target, suite in targets.items():
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True)
        assert f"--suite {suite}" in done.stdout


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_the_makefile_explores_all_examples_of_properties_alone() -> None:
    done = subprocess.run(["make", "-n", "explore"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"--suite {Suite.ALL} -m hypothesis --hypothesis-profile {EXPLORE}" in done.stdout


def test_ci_runs_both() -> None:
    steps = (ROOT / ".ci" / "run").read_text("utf-8")
    for target in ("test", "test-rest"):
        assert re.search(rf'^make VENV="\$scratch/venv" {target} ', steps, re.M)


def test_all_files_of_tests_are_in_rooms_that_are_named() -> None:
    for path in suites.TESTS.rglob("test_*.py"):
        assert room_of(path)
        assert may_have_quick_tests(path) == (room_of(path) in suites.QUICK_ROOMS and not suites.is_compiled(path))
    for name in [f"tests/{directory}" for directory in suites.COMPILED]:
        assert (ROOT / name).exists()
    for name in [*suites.FIRST, *suites.ALONE, *suites.ONE_FILE_AT_A_TIME]:
        file, _, test = name.partition("::")
        assert (ROOT / file).exists()
        assert not test or f"def {test.partition('[')[0]}(" in (ROOT / file).read_text("utf-8")


@pytest.mark.parametrize("name", ["elsewhere/test_it.py", "test_it.py"])
def test_a_file_in_no_room_is_an_error_that_says_where_to_name_it(name: str) -> None:
    with pytest.raises(pytest.UsageError, match=r"tests/support/suites.py does not name"):
        room_of(suites.TESTS / name)


def test_what_runs_alone() -> None:
    assert is_alone("tests/faults/test_matrix.py::test_row[x]")
    assert not is_alone("tests/faults/test_oracle.py::test_it")


def test_sets_of_parameters_beyond_the_first_are_of_the_rest() -> None:
    one, other = rest_after(1, "a", ["b", 2])
    assert (one.values, one.marks) == (("a",), [])
    assert (other.values, [mark.name for mark in other.marks]) == (("b", 2), ["rest"])


def test_a_quick_test_that_starts_a_process_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "quick_test_that_runs", "tests/scheduler/test_it.py::test_it")
    with pytest.raises(AssertionError, match=r"test_it starts a process: mark it with @pytest\.mark\.processes"):
        subprocess.Popen([sys.executable, "-c", ""])


def test_a_handler_that_a_test_leaves_behind_is_taken_away() -> None:
    """The test after this one looks."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def test_the_handler_of_the_test_before_is_gone() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
