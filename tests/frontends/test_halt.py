"""When a run of commands stops before its end."""

import pytest

from frontends.command.halt import Halt, Halting, parse_halt
from sparrow_py.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "halt"),
    [
        ("never", None),
        ("0", None),
        ("now,fail=1", Halt(now=True, why="fail", count=1, percent=False)),
        ("soon,success=30", Halt(now=False, why="success", count=30, percent=False)),
        ("now,done=5%", Halt(now=True, why="done", count=5, percent=True)),
        ("1", Halt(now=False, why="fail", count=1, percent=False)),
        ("2", Halt(now=True, why="fail", count=1, percent=False)),
        ("-2", Halt(now=True, why="success", count=1, percent=False)),
        ("20%", Halt(now=False, why="fail", count=20, percent=True)),
    ],
)
def test_what_is_said(text: str, halt: Halt | None) -> None:
    assert parse_halt(text) == halt


@pytest.mark.parametrize(
    "text",
    ["", "soon", "now,fail", "soon,fail=0", "later,fail=1", "now,fail=-1", "now,fail=101%", "3", "now,fail=1.5", "%"],
)
def test_mistakes(text: str) -> None:
    with pytest.raises(InvalidRequest, match="halt: "):
        parse_halt(text)


def stops_after(text: str, codes: list[int | None]) -> tuple[int, int]:
    """How many commands have ended when the run stops, and its exit code, 77 if that is not what the halt says."""
    halt = parse_halt(text)
    assert halt is not None
    halting = Halting(halt, len(codes))
    stops = [number for number, code in enumerate(codes, 1) if halting.ended(code)]
    assert len(stops) <= 1
    return (stops[0] if stops else 0), halting.exit_code(77)


@pytest.mark.parametrize(
    ("text", "codes", "expected"),
    [
        ("now,fail=1", [0, 0, 5, 6], (3, 5)),
        ("soon,fail=1", [0, -9, 0], (2, 137)),
        ("soon,fail=1", [0, None, 0], (2, 1)),
        ("soon,fail=2", [1, 0, 3, 0], (3, 77)),
        ("soon,success=2", [1, 0, 3, 0], (4, 0)),
        ("soon,done=3", [1, 0, 0, 0], (3, 77)),
        ("soon,fail=5", [1, 1], (0, 77)),
        ("soon,fail=20%", [1, 0, 1, 1, 1, 0, 0, 0, 0, 0], (3, 40)),
        ("soon,fail=50%", [1, 1, 0, 1, 0, 0], (4, 50)),
        ("soon,done=50%", [0, 1, 0, 0], (2, 25)),
        ("now,done=1", [4, 0], (1, 4)),
        ("soon,success=50%", [0, 0, 0, 1, 1, 1], (3, 0)),
    ],
)
def test_when_it_stops_and_with_which_code(text: str, codes: list[int | None], expected: tuple[int, int]) -> None:
    assert stops_after(text, codes) == expected
