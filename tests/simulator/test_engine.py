"""Virtual time: events in order of time, then of insertion, whichever of the two queues they are in."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from simulator.engine import Engine

LANE_S = 0.5
"""Whatever goes through the lane takes as long."""

Step = tuple[bool, float]
"""(whether through the lane, delay in the heap)."""
steps = st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 0.5, 1.0])), max_size=3)


class Tree:
    """Events that add events: each notes when it happened and as which number it was added."""

    def __init__(self, engine: Engine, plan: list[list[Step]]) -> None:
        self.engine = engine
        self.happened: list[tuple[float, int]] = []
        self.planned: list[tuple[float, int]] = []
        self._plan = iter(plan)

    def happen(self, number: int) -> None:
        self.happened.append((self.engine.now_s, number))
        for lane, delay_s in next(self._plan, []):
            self.add(LANE_S if lane else delay_s, lane=lane)

    def arrive(self, number: int, frame: list[object]) -> None:
        assert not frame
        self.happen(number)

    def add(self, delay_s: float, *, lane: bool) -> None:
        engine, at_s = self.engine, self.engine.now_s + delay_s
        number = engine.added + 1
        self.planned.append((at_s, number))
        if lane:
            engine.added = number
            engine.lane.append((at_s, number, self.arrive, number, []))
        else:
            engine.at(at_s, self.happen, number)


@given(st.lists(steps, max_size=40))
def test_events_happen_by_time_then_by_insertion_and_each_once(plan: list[list[Step]]) -> None:
    engine = Engine()
    tree = Tree(engine, plan)
    for delay_s, lane in ((0.5, False), (LANE_S, True), (0.5, False)):
        tree.add(delay_s, lane=lane)
    engine.run()
    assert tree.happened == sorted(tree.planned)
    assert engine.events == len(tree.planned)
    assert engine.next_s() is None


@given(st.lists(steps, max_size=40), st.lists(st.floats(0, 3), max_size=5).map(sorted))
def test_stopping_on_the_way_changes_nothing(plan: list[list[Step]], stops_s: list[float]) -> None:
    """All that is due at a stop has happened, nothing that comes later."""
    trees = []
    for stops in ([], stops_s):
        engine = Engine()
        tree = Tree(engine, plan)
        tree.add(0.5, lane=False)
        tree.add(LANE_S, lane=True)
        for stop_s in stops:
            engine.run(stop_s)
            assert engine.now_s == stop_s
            next_s = engine.next_s()
            assert next_s is None or next_s > stop_s
        engine.run()
        trees.append(tree)
    assert trees[0].happened == trees[1].happened


def test_a_time_that_has_passed_is_now() -> None:
    engine = Engine(start_s=10.0)
    seen: list[float] = []
    engine.at(3.0, lambda _: seen.append(engine.now_s))
    engine.run()
    assert seen == [10.0]


def test_what_an_event_causes_is_sent_at_the_end_of_its_turn() -> None:
    engine = Engine()
    seen: list[str] = []
    engine.end_of_turn = lambda: seen.append("end")

    def happen(name: Any) -> None:
        seen.append(name)

    for name in ("one", "two"):
        engine.at(1.0, happen, name)
    engine.run()
    assert seen == ["one", "end", "two", "end"]


def test_events_of_the_same_time_that_an_event_adds_come_after_those_that_were_there() -> None:
    engine = Engine()
    seen: list[str] = []

    def first(_: Any) -> None:
        engine.at(engine.now_s, seen.append, "child")

    engine.at(1.0, first)
    engine.at(1.0, seen.append, "second")
    engine.run()
    assert seen == ["second", "child"]
