"""What several workers print that call the same program, and call it again: once, and in its order."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from frontends.dataflow.control_messages import OF_A_TASK, Printed
from frontends.dataflow.printed_lines import PrintedLines
from frontends.dataflow.worker import PRINTED_CHARS_MAX, _Abandoned, _OfTasks, _Prints


class _Sent:
    """Of a worker: what its streams send."""

    def __init__(self) -> None:
        self.messages: list[Printed] = []

    def printed(self, text: str, run: int, number: int, *, is_error: bool) -> None:
        self.messages.append(Printed(0, is_error, text, run, number))


def stream(sent: _Sent) -> _Prints:
    worker: Any = sent
    return _Prints(worker, is_error=False)


def test_the_programs_pieces_are_numbered_and_those_of_tasks_are_not() -> None:
    sent = _Sent()
    out = stream(sent)
    out.write("imported\n")
    with out.of_program(7):
        out.write("step ")
        with _OfTasks(out):
            out.write("in a task")
        out.write("1\n")
        out.write("x" * (PRINTED_CHARS_MAX + 1))
    assert [(message.text[:9], message.run, message.number) for message in sent.messages] == [
        ("imported\n", 0, OF_A_TASK), ("step ", 7, 0), ("in a task", 7, OF_A_TASK), ("1\n", 7, 1), ("xxxxxxxxx", 7, 2),
        ("x", 7, 3),
    ]  # fmt: skip


def test_a_call_that_is_abandoned_prints_no_more_and_the_next_one_does() -> None:
    """What a program prints as it is left is nothing that it prints when it comes as far."""
    sent = _Sent()
    out = stream(sent)
    try:
        with out.of_program(0):
            try:
                with _OfTasks(out):
                    raise _Abandoned
            finally:
                out.write("left\n")
    except _Abandoned:
        pass
    with out.of_program(0):
        out.write("again\n")
    assert sent.messages == [Printed(0, False, "again\n", 0, 0)]


@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(0, 12))
def test_whatever_workers_fail_each_piece_is_shown_once_and_in_order(seed: int, workers: int, pieces: int) -> None:
    """Epochs end anywhere, messages of workers overtake each other, and in the last epoch all come to the end."""
    chance = Random(seed)
    lines = PrintedLines()
    shown: list[tuple[int, str]] = []
    for is_last in [False] * chance.randint(0, 3) + [True]:
        lines.keep([0, 1])
        for run in (0, 1):
            came = [pieces if is_last else chance.randint(0, pieces) for _ in range(workers)]
            sent = [0] * workers
            while any(at < end for at, end in zip(sent, came, strict=True)):
                worker = chance.choice([number for number in range(workers) if sent[number] < came[number]])
                message = Printed(worker, False, f"line {sent[worker]}", run, sent[worker])
                sent[worker] += 1
                if lines.is_new(message):
                    shown.append((run, message.text))
    for run in (0, 1):
        assert [text for at, text in shown if at == run] == [f"line {number}" for number in range(pieces)]


def test_streams_are_counted_apart_tasks_not_and_runs_that_are_over_say_nothing() -> None:
    lines = PrintedLines()
    lines.keep([0])
    for is_error in (False, True):
        assert [lines.is_new(Printed(0, is_error, "", 0, 0)) for _ in range(2)] == [True, False]
    assert all(lines.is_new(Printed(0, False, "", 0, OF_A_TASK)) for _ in range(2))
    lines.keep([1])
    assert not lines.is_new(Printed(0, False, "", 0, 1)) and lines.is_new(Printed(0, False, "", 1, 0))
