"""The controller of workers that are commanded: epochs, workers that come, yield and are lost, snapshots, runs."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.dataflow import Dataflow
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, Switches
from frontends.dataflow.commands import Invoke, StorePlaces, Submit
from frontends.dataflow.control_messages import RunFailed, RunOver
from frontends.dataflow.controller_core import END, State
from frontends.dataflow.shipping import pack_outline, unpack_definition
from tests.support.dataflow_led_world import LedWorld
from tests.support.dataflow_random import random_program

SEEDS = st.integers(0, 1 << 30)
PLANES = {"central": CENTRAL, "templates": ALL_ON}


def doubling(partitions: int = 4) -> tuple[Dataflow, Any]:
    """A program of one block a round, ten rounds."""
    df = Dataflow(partitions=partitions, progress=False)
    X = df.partition(np.arange(8.0), name="X")
    count, shared = df.single(np.zeros(1), name="count"), df.replicate(np.zeros(1), name="shared")
    grow = df.stage(reads=[shared], writes=[X], name="grow")(_grow)
    tick = df.stage(writes=[count], name="tick")(_tick)
    tell = df.stage(reads=[count], writes=[shared], name="tell")(_tell)
    more = df.signal(on=count, name="more")(lambda count: count[0] < 10)

    def program() -> None:
        while more():
            grow()
            tick()
            tell()

    return df, program


def _grow(shared: Any, x: Any) -> None:
    x *= 2
    x += shared[0]


def _tick(count: Any) -> None:
    count += 1


def _tell(count: Any, shared: Any) -> None:
    shared[0] = count[0]


@pytest.mark.parametrize("plane", PLANES)
@settings(max_examples=30)
@given(SEEDS)
def test_workers_that_come_yield_and_are_lost_change_no_answer(plane: str, seed: int) -> None:
    """Three runs, each after the other; between them workers are lost, too. Snapshots are what `inline` has then."""
    df, program = random_program(seed)
    chance = Random(seed)
    world = LedWorld(df, program, chance.randint(1, 3), Random(seed + 1), switches=PLANES[plane])
    happens = {"moves": 8, "joins": 1, "snapshots": 2, "crashes": 1, "yields": 2}
    world.run(**happens)
    for _ in range(2):
        if world.workers and chance.random() < 0.5:
            world.lose(min(world.workers))
        if world.workers and chance.random() < 0.5:
            world.leave()
        world.call(program)
        world.run(**happens)
    world.check_equal_to_inline()


@pytest.mark.parametrize("switches", [ALL_ON, CENTRAL, Switches(caching=False), Switches(closing=False)])
def test_a_run_that_follows_another_keeps_values_where_they_are(switches: Switches) -> None:
    """Copies that few workers have the latest value of, too."""
    for seed in range(5):
        df, program = doubling()
        world = LedWorld(df, program, 3, Random(seed), switches=switches)
        world.run()
        before = world.controller.epoch
        world.call(program)
        world.run()
        assert (world.controller.epoch, world.controller.rollbacks, world.runs_over) == (before + 1, 0, 2)
        world.check_equal_to_inline()


def test_a_worker_that_joins_gets_its_share_and_one_that_leaves_hands_over_what_it_has() -> None:
    df, program = doubling(partitions=8)
    world = LedWorld(df, program, 2, Random(3), switches=ALL_ON)
    world.run(joins=2, yields=1)
    assert world.joins == 2 and world.yields == 1 and world.controller.rollbacks == 0
    held = [len(world.placed.held_by(number)) for number in world.workers]
    assert len(held) == 3 and min(held) >= 2
    world.check_equal_to_inline()


def test_the_last_worker_that_yields_between_two_runs_leaves_a_snapshot() -> None:
    df, program = doubling()
    world = LedWorld(df, program, 1, Random(1), switches=ALL_ON)
    world.run()
    world.leave()
    for link in world._deliverable():
        world.deliver(link)
    while links := world._deliverable():
        world.deliver(links[0])
    assert not world.workers and (0, END) in world.whole
    world.call(program)
    world.run()
    assert world.controller.rollbacks == 0
    world.check_equal_to_inline()


def test_a_snapshot_that_is_there_already_is_not_made_again() -> None:
    df, program = doubling()
    world = LedWorld(df, program, 1, Random(1), switches=ALL_ON)
    sent: list[Any] = []
    tell = world._tell
    world._tell = lambda worker, message: (sent.append(message), tell(worker, message))[1]  # type: ignore[method-assign]
    while world.controller._signalled < 3:
        links = world._deliverable()
        world.deliver(links[0]) if links else world.work(0)
    world.snapshot()
    while not world.completed:
        links = world._deliverable()
        world.deliver(links[0]) if links else world.work(0)
    stored = sum(isinstance(message, StorePlaces) for message in sent)
    key = (world.controller.position, world.controller._signalled)
    if key in world.whole:
        world.snapshot()
        assert world.controller._storing is None
        assert sum(isinstance(message, StorePlaces) for message in sent) == stored
    world.run()
    world.check_equal_to_inline()


def test_what_the_program_says_of_an_epoch_that_is_over_is_not_heard() -> None:
    df, program = doubling()
    world = LedWorld(df, program, 2, Random(1), switches=ALL_ON)
    controller, epoch = world.controller, world.controller.epoch
    world.lose(min(world.workers))
    for message in (
        Submit(epoch, 0, 0, [], (), True), Invoke(epoch, 0, 0, 1, ()), RunOver(epoch, 1, 0, b"", ()),
        RunFailed(epoch, b""),
    ):  # fmt: skip
        controller.driver_says(message, 0.0)
        assert controller.state is not State.RETURNING and controller.wanted
    world.run()
    world.check_equal_to_inline()


def test_an_outline_has_no_functions_and_no_values() -> None:
    df, _ = doubling()
    outline = unpack_definition(pack_outline(df._definition))
    assert all(stage.function is None for stage in outline.stages)
    assert all(not getattr(spec.source, "values", ()) for spec in outline.datasets)
    assert outline.group_partitions() == df._definition.group_partitions()
    assert [stage.reads for stage in outline.stages] == [stage.reads for stage in df._definition.stages]
