"""What happened lately at a node: the latest notes, and nothing where nobody wants them."""

from __future__ import annotations

import pytest

from node_monitor.history import History


class NotFormatted:
    def __str__(self) -> str:
        raise AssertionError("this is not to be formatted")


def test_nothing_is_kept_or_formatted_without_a_length() -> None:
    history = History(0)
    history.note(1.0, "run %s ended", NotFormatted())
    assert not history.kept and history.story() == []


@pytest.mark.parametrize(("notes", "kept"), [(1, [0]), (3, [0, 1, 2]), (5, [2, 3, 4])])
def test_the_latest_are_kept_oldest_first(notes: int, kept: list[int]) -> None:
    history = History(3)
    for number in range(notes):
        history.note(float(number), "run %d ended", number)
    assert history.story() == [f"{number}.000000 run {number} ended" for number in kept]


def test_a_note_says_what_was_so_when_it_was_made() -> None:
    history, runs = History(1), [1]
    history.note(0.0, "runs %s", runs)
    runs.append(2)
    assert history.story() == ["0.000000 runs [1]"]
