"""What a worker tells the controller: in order, each thing in time, signals in quick succession together."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from frontends.dataflow.control_messages import Beat
from frontends.dataflow.messages import Flag, Told
from frontends.dataflow.reports import TOLD_EVERY_S, WAITING_MAX, Reports

FLAG = Flag(1, 1, snapshot=True, joins=-1)
STEPS = st.lists(st.tuples(st.sampled_from(["signal", "signal", "flagged", "other", "look"]), st.floats(0, 0.02)))


class Said:
    """A worker's reports, with when they were made and when they went."""

    def __init__(self) -> None:
        self.now_s, self.blocks = 0.0, 0
        self.made: list[tuple[float, Any]] = []
        self.gone: list[tuple[float, Any]] = []
        self.reports = Reports(lambda message: self.gone.append((self.now_s, message)), lambda: self.now_s)

    def send(self, message: Any) -> None:
        self.made.append((self.now_s, message))
        self.reports.send(message)

    def signal(self, *flags: Flag) -> None:
        self.blocks += 1
        self.send(Told(1, self.blocks, 2, 3, 4, True, 5, flags))


@given(STEPS)
def test_all_goes_in_order_and_what_waits_goes_at_the_first_look_after_its_time(steps: list[tuple[str, float]]) -> None:
    said = Said()
    for what, later_s in steps:
        said.now_s += later_s
        match what:
            case "signal":
                said.signal()
            case "flagged":
                said.signal(FLAG)
                assert not said.reports.waiting, "something is to happen at it"
            case "other":
                said.send(Beat(0))
                assert not said.reports.waiting, "it comes after them"
            case _:
                said.reports.see(said.now_s)
                waiting = len(said.reports.waiting)
                assert not waiting or said.now_s - said.made[-waiting][0] < TOLD_EVERY_S
        assert [message for _, message in said.gone] + said.reports.waiting == [message for _, message in said.made]


def test_a_signal_after_a_while_goes_at_once_and_those_that_follow_it_go_together() -> None:
    said = Said()
    for _ in range(100):
        said.signal()
        said.now_s += 1e-5
    assert len(said.gone) == 1
    said.now_s += TOLD_EVERY_S
    said.reports.see(said.now_s)
    assert len(said.gone) == 100
    said.now_s += TOLD_EVERY_S
    said.signal()
    assert len(said.gone) == 101


def test_signals_that_wait_have_a_limit() -> None:
    said = Said()
    for _ in range(WAITING_MAX + 2):
        said.signal()
    assert len(said.gone) == WAITING_MAX + 2
