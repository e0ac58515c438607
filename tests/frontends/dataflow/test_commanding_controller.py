"""The controller of workers that are commanded: epochs, workers that come, yield and are lost, snapshots, runs."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.dataflow import Dataflow, commanded_core, commanding_core
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, Switches
from frontends.dataflow.commands import Invoke, StorePlaces, Submit
from frontends.dataflow.control_messages import CONTROLLER, RunFailed, RunOver
from frontends.dataflow.controller_core import END, State
from frontends.dataflow.messages import Stored
from frontends.dataflow.shipping import pack_outline, unpack_definition
from tests.support.dataflow_led_world import LedWorld
from tests.support.dataflow_random import random_program
from tests.support.dataflow_world import run_three_times
from tests.support.suites import rest_after

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


@pytest.mark.parametrize("plane", rest_after(1, "templates", "central"))
@settings(max_examples=15)
@given(SEEDS)
def test_workers_that_come_yield_and_are_lost_change_no_answer(plane: str, seed: int) -> None:
    """Three runs, each after the other; between them workers are lost, too. Snapshots are what `inline` has then."""
    df, program = random_program(seed)
    chance = Random(seed)
    world = LedWorld(df, program, chance.randint(1, 3), Random(seed + 1), switches=PLANES[plane])
    run_three_times(world, program, chance)


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


def test_partitions_that_no_block_touches_after_their_move_are_where_they_were_when_the_run_ends() -> None:
    """The next run finds them, and so does the program that returns them."""
    df = Dataflow(partitions=4, progress=False)
    X, Y = df.partition(np.arange(8.0), name="X"), df.partition(np.arange(8.0), name="Y")
    count = df.single(np.zeros(1), name="count")
    pair = df.stage(reads=[X], writes=[Y], name="pair")(_grow)
    double = df.stage(writes=[Y], name="double")(_tick)
    tick = df.stage(writes=[count], name="tick")(_tick)
    more = df.signal(on=count, name="more")(lambda count: count[0] % 10 > 0)

    def program() -> None:
        pair()
        tick()
        while more():
            double()
            tick()

    world = LedWorld(df, program, 2, Random(1), switches=ALL_ON)
    while world.controller._signalled < 3:
        links = world._deliverable()
        world.deliver(links[0]) if links else any(map(world.work, (0, 1)))
    group = world.definition.groups[X._spec.id]
    source = world.placed[group, 0].worker
    world.move((group, 0), 1 - source)
    world.run()
    controller = world.controller
    assert controller._holder(X._spec.id, 0) == source and controller._holder(Y._spec.id, 0) == 1 - source
    world.call(program)
    world.run()
    assert controller.rollbacks == 0
    world.check_equal_to_inline()


def test_a_snapshot_of_a_block_that_comes_after_the_runs_end_is_not_the_one_of_what_the_run_left() -> None:
    df, program = doubling()
    world = LedWorld(df, program, 1, Random(1), switches=ALL_ON)
    held: list[Any] = []
    receive = world.controller.receive

    def late(number: int, message: Any, now_s: float) -> None:
        if isinstance(message, Stored) and message.block != END:
            held.append((number, message))
        else:
            receive(number, message, now_s)

    world.controller.receive = late  # type: ignore[method-assign]
    while world.controller._signalled < 3:
        links = world._deliverable()
        world.deliver(links[0]) if links else world.work(0)
    world.snapshot()
    while world.controller.state is not State.IDLE:
        links = world._deliverable()
        world.deliver(links[0]) if links else world.work(0)
    assert held and not world.whole
    world.leave()
    world.deliver((0, CONTROLLER))
    ((number, stored),) = held
    world._do(lambda: receive(number, stored, 0.0))
    assert 0 in world.workers, "what it has is not stored"
    while links := world._deliverable():
        world.deliver(links[0])
    assert not world.workers and (0, END) in world.whole
    world.check_equal_to_inline()


def test_a_snapshot_that_is_there_already_is_not_made_again() -> None:
    df, program = doubling()
    world = LedWorld(df, program, 1, Random(1), switches=ALL_ON)
    sent: list[Any] = []
    tell = world._tell
    world._tell = lambda worker, message: (sent.append(message), tell(worker, message))[1]  # type: ignore[method-assign,func-returns-value]
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


def test_workers_have_all_patches_that_the_controller_takes_them_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches that move partitions before a block is captured take the room of others, too."""
    for module in (commanding_core, commanded_core):
        monkeypatch.setattr(module, "PATCHES_MAX", 2)
    kept = 0
    for seed in range(6):
        df, program = random_program(seed, repeats=12)
        world = LedWorld(df, program, 3, Random(seed), switches=ALL_ON)
        world.run(moves=30)
        core = world.controller._commanding
        assert core is not None
        for number, patch in core._patches.items():
            for worker in patch.copies:
                assert number in world.cores[worker]._patches
                kept += 1
        world.check_equal_to_inline()
    assert kept
