"""docs/errors.md has every error as the code has it, and every exit status."""

import inspect
import re

import pytest

from frontends.cli import run, stopping
from frontends.cli.output import FAILED_EXIT_MAX
from node_monitor.executors import launcher
from simulator.soak import command
from sparrow_py import errors
from sparrow_py.daemon import command_group
from tests.support.documents import ROOT, code_spans, headings, section

ERRORS = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
ERRORS = {name: kind for name, kind in ERRORS.items() if kind.__module__ == errors.__name__}
STATUSES = {
    command_group.ERROR_EXIT,
    command_group.USAGE_EXIT,
    command_group.INTERRUPTED_EXIT,
    command_group.BROKEN_PIPE_EXIT,
    FAILED_EXIT_MAX,
    run.NotRun.exit_code,
    stopping.HUNG_UP_EXIT,
    stopping.TERMINATED_EXIT,
    launcher.CANNOT_RUN_EXIT,
    command.FAILED_EXIT,
}
branch = re.compile(r"^((?:[│ ]   )*)(?:├── |└── )(\w+)", re.M).finditer


def test_every_error_is_explained() -> None:
    sections = [section("docs/errors.md", when) for when in ("Before a task runs", "When a task has not finished")]
    assert {name for text in sections for name in headings(text, 3)} == ERRORS.keys()


@pytest.mark.parametrize("name", ERRORS)
def test_errors_that_are_made_of_more_than_a_message_say_of_what(name: str) -> None:
    written = [span for span in code_spans(section("docs/errors.md", name)) if span.startswith(f"{name}(")]
    made = "__init__" in vars(ERRORS[name]) or ERRORS[name].__init__ is errors.InvalidRequest.__init__
    if not made or name == "InvariantViolated":  # Which nobody but the cores makes.
        assert not written
        return
    found = inspect.signature(ERRORS[name])
    parameters = [one.replace(annotation=one.empty) for one in found.parameters.values()]
    assert written == [name + str(found.replace(parameters=parameters, return_annotation=found.empty))]


@pytest.mark.parametrize("where", ["docs/errors.md", "sparrow_py/errors.py"])
def test_the_tree_is_that_of_the_code(where: str) -> None:
    path = ["SparrowError"]
    parents: dict[str, str] = {}
    for found in branch((ROOT / where).read_text("utf-8")):
        name, depth = found[2], len(found[1].replace("    ", "", 1) if where.endswith(".py") else found[1]) // 4 + 1
        path[depth:] = [name]
        parents[name] = path[depth - 1]
    ours = {name: kind for name, kind in ERRORS.items() if issubclass(kind, errors.SparrowError)}
    assert parents == {name: kind.__bases__[0].__name__ for name, kind in ours.items() if name != "SparrowError"}


def test_every_exit_status_is_explained() -> None:
    numbers = re.findall(r"^\| (\d+)(?: to (\d+))? \|", section("docs/errors.md", "Exit statuses"), re.M)
    told = {int(number) for pair in numbers for number in pair if number}
    assert told >= STATUSES
