"""`benchmarks.habits`: ways take turns, and have to give the same."""

import operator

import click
import pytest

from benchmarks.habits.__main__ import main
from benchmarks.habits.turns import OURS, geometric_mean_of_ratios, in_turns


def test_ways_take_turns_and_another_is_first_each_time() -> None:
    ran: list[str] = []
    ways = {name: lambda name=name: ran.append(name) for name in (OURS, "b", "c")}
    rows, seconds = in_turns("work", ways, 2, operator.eq)
    assert ran == [OURS, OURS, "b", "c", OURS, "b", "c", "b", "c", OURS]
    assert [row["way"] for row in rows] == [OURS, "b", "c"] and rows[0]["ours / this"] == 1
    assert len(seconds) == 2 and seconds[0].keys() == ways.keys()
    assert geometric_mean_of_ratios(rows, OURS) == 1


def test_another_result_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="work: the result of b is not that of sparrow"):
        in_turns("work", {OURS: lambda: 1, "b": lambda: 2}, 1, operator.eq)


def test_each_command_has_a_module() -> None:
    context = click.Context(main)
    assert {"dask", "joblib", "parallel"} == set(main.list_commands(context))
    assert all(main.get_command(context, name) is not None for name in main.list_commands(context))
