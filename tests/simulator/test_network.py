"""The simulated network: delays as they are stated, and nothing overtakes on a link."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine import Engine
from simulator.network import KINDS, Delay, Network, Pipe
from sparrow_py.errors import InvalidOption

PIPES = 3
DRAWS = 20_000
Z = 3.9
"""Normal quantile of a two-sided confidence of 99.99 %."""

sends = st.lists(st.tuples(st.floats(0, 0.01), st.integers(0, PIPES - 1)), max_size=60)


@pytest.mark.parametrize("kind", KINDS)
@given(sends=sends, seed=st.integers(0, 1000))
def test_frames_of_a_link_never_overtake_each_other(kind: str, sends: list[tuple[float, int]], seed: int) -> None:
    """All arrive, each once, in the order in which they were sent over their pipe, and none before it could."""
    engine = Engine()
    delay = Delay(kind, one_way_ms=2.0)
    network = Network(engine, delay, random.Random(seed))
    arrived: list[list[tuple[float, int]]] = [[] for _ in range(PIPES)]

    def receive(pipe: int, frame: list[Any]) -> None:
        for at_s, number in frame:
            assert engine.now_s >= at_s + (0.002 if kind == "fixed" else 0.001)
            arrived[pipe].append((at_s, number))

    pipes = [Pipe(receive, number) for number in range(PIPES)]

    def send(what: tuple[int, int]) -> None:
        pipe, number = what
        network.send(pipes[pipe], (engine.now_s, number))

    for number, (at_s, pipe) in enumerate(sends):
        engine.at(at_s, send, (pipe, number))
    engine.run()
    for pipe in range(PIPES):
        sent = [(at_s, number) for number, (at_s, on) in enumerate(sends) if on == pipe]
        assert arrived[pipe] == sorted(sent)


def test_frames_of_different_links_do_overtake_where_delays_are_drawn() -> None:
    engine = Engine()
    network = Network(engine, Delay("exponential"), random.Random(1))
    order: list[int] = []
    pipes = [Pipe(lambda _, frame: order.extend(frame), None) for _ in range(20)]
    for number, pipe in enumerate(pipes):
        network.send(pipe, number)
    network.flush()
    engine.run()
    assert sorted(order) == list(range(20)) != order


def test_what_is_sent_in_one_turn_is_one_frame() -> None:
    engine = Engine()
    network = Network(engine, Delay(), random.Random(1))
    frames: list[list[Any]] = []
    pipe = Pipe(lambda _, frame: frames.append(frame), None)

    def send(messages: str) -> None:
        for message in messages:
            network.send(pipe, message)

    engine.at(0.0, send, "ab")
    engine.at(0.0, send, "c")
    engine.run()
    assert frames == [["a", "b"], ["c"]]


@pytest.mark.parametrize("kind", KINDS)
def test_delays_have_the_mean_that_is_stated(kind: str) -> None:
    rng, delay = random.Random(1), Delay(kind, one_way_ms=3.0)
    drawn_ms = [1000 * delay.draw_s(rng) for _ in range(DRAWS)]
    error = statistics.stdev(drawn_ms) / math.sqrt(DRAWS)
    assert abs(statistics.fmean(drawn_ms) - 3.0) <= Z * error + 1e-9
    assert min(drawn_ms) >= (3.0 if kind == "fixed" else 1.5) - 1e-9
    if kind == "uniform":
        assert max(drawn_ms) <= 4.5


@pytest.mark.parametrize(
    ("kind", "one_way_ms", "named"),
    [("normal", 0.5, "delay"), ("fixed", -1, "rtt_ms"), ("fixed", math.nan, "rtt_ms"), ("fixed", math.inf, "rtt_ms")],
)
def test_what_cannot_be_is_named(kind: str, one_way_ms: float, named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        Delay(kind, one_way_ms)
