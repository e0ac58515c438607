"""The view while a point runs: the numbers of all generators together, and nothing without a terminal."""

import io
import math

from rich.console import Console

from loadgen.live_view import LiveView, line
from loadgen.replay import Progress

ONE = Progress(100, 40, 30, 1, 90, 0.002, math.nan)
OTHER = Progress(100, 41, 35, 0, 60, 0.004, 0.105)


def test_generators_are_added_up() -> None:
    text = line([ONE, OTHER])
    assert "jobs 81 of 200 submitted, 15 running, 65 done" in text
    assert "1 refused" in text
    assert "tasks under way 150" in text
    assert "p50 105.0 ms" in text
    assert "late at most 4.0 ms" in text


def test_numbers_that_are_not_known_are_left_out() -> None:
    text = line([Progress(10)])
    assert "p50" not in text
    assert "refused" not in text


def shown(*, terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=150)
    with LiveView(2, console) as view:
        view.begin("load 0.5")
        view.show([ONE, OTHER])
        view.end()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_nothing_is_shown() -> None:
    assert shown(terminal=False) == ""
    assert "load 0.5" in shown(terminal=True)
