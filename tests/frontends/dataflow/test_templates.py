"""Plans, templates, edits and versions, each by itself."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.dataflow import Dataflow, ProtocolError
from frontends.dataflow.calls import Block, Calls, chunk_sources
from frontends.dataflow.commands import Edits, Install
from frontends.dataflow.dispatching import Dispatcher
from frontends.dataflow.objects import FRESH, Objects
from frontends.dataflow.planning import TRANSFERS_FROM, Node, Planner, transfer_id, transfer_of
from frontends.dataflow.stages import Definition
from frontends.dataflow.templates import ControllerTemplate, Patch, WorkerHalf, WorkerTemplates, edits_between
from tests.support.dataflow_commanded_world import CommandedWorld
from tests.support.dataflow_random import random_program

SEEDS = st.integers(0, 1 << 30)


def random_block(seed: int) -> tuple[Definition, tuple[int, ...]]:
    """The stages of one of a random program's blocks."""
    df, program = random_program(seed, blocks=2, repeats=2)
    blocks: list[Block] = []
    df._freeze()

    def keep(block: Block) -> bool:
        blocks.append(block)
        return False

    df._called(program, Calls(keep))
    return df._definition, blocks[0].stages


def random_owners(definition: Definition, chance: Random, workers: int = 4) -> dict[int, list[int]]:
    return {
        group: [chance.randrange(workers) for _ in range(count)]
        for group, count in definition.group_partitions().items()
    }


def planned(definition: Definition, stages: tuple[int, ...], owners: dict[int, list[int]]) -> Planner:
    """The plan of tasks that come one by one."""
    planner = Planner(definition, owners)
    for stage in stages:
        for index in range(planner.call(stage).partitions):
            planner.task(index)
    planner.close()
    return planner


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, (1 << 30) - 1))
def test_numbers_of_transfers_say_what_goes_where_and_are_above_those_of_tasks(
    call: int, dataset: int, worker: int
) -> None:
    number = transfer_id(call, dataset, worker)
    assert TRANSFERS_FROM <= number < number + 1 < 1 << 63
    assert transfer_of(number) == (call, dataset, worker, False, number)
    assert transfer_of(number + 1) == (call, dataset, worker, True, number)


@settings(max_examples=25)
@given(SEEDS)
def test_a_template_for_the_placement_in_which_it_was_captured_is_what_was_dispatched(seed: int) -> None:
    definition, stages = random_block(seed)
    owners = random_owners(definition, Random(seed))
    planner = planned(definition, stages, owners)
    planner.check_invariants()
    template = ControllerTemplate.captured(1, definition, planner)
    template.check_invariants()
    again = template.planned(definition, owners, closes=True)
    again.check_invariants()
    assert again.halves == planner.halves and again.needed == planner.needed
    assert {dataset: written.fresh for dataset, written in again.written.items()} == {
        dataset: written.fresh for dataset, written in planner.written.items()
    }


@settings(max_examples=25)
@given(SEEDS)
def test_closing_leaves_every_copy_that_the_block_needs_the_latest(seed: int) -> None:
    definition, stages = random_block(seed)
    planner = planned(definition, stages, random_owners(definition, Random(seed)))
    for dataset, worker in planner.needed:
        assert dataset not in planner.written or worker in planner.written[dataset].fresh


@settings(max_examples=25)
@given(SEEDS)
def test_edits_make_of_a_workers_half_that_of_another_placement(seed: int) -> None:
    """In the order of the program, so that edges go forwards."""
    definition, stages = random_block(seed)
    chance = Random(seed)
    before, after = (planned(definition, stages, random_owners(definition, chance)) for _ in range(2))
    for worker in before.halves:
        starts = tuple(before.starts)
        half = WorkerHalf.installed(Install(0, 1, 0, stages, starts, list(before.halves[worker].items())))
        edits = edits_between(half.tasks, after.halves.get(worker, {}))
        if edits is None:
            assert before.halves[worker] == after.halves[worker]
            continue
        half.edit(edits)
        assert half.revision == 1 and half.tasks == after.halves.get(worker, {})
        graph, transfers = half.graph(definition)
        graph.check_invariants()
        assert len(graph.tasks) == len(half.tasks)
        assert len(transfers) == sum(number >= TRANSFERS_FROM for number in half.tasks)


@settings(max_examples=25)
@given(SEEDS)
def test_single_tasks_of_a_plan_are_all_dispatched_each_after_those_before_it(seed: int) -> None:
    definition, stages = random_block(seed)
    chance = Random(seed)
    owners = random_owners(definition, chance)
    objects = Objects(definition, range(4), owners)
    planner = planned(definition, stages, owners)
    plan = WorkerTemplates.of_plan(2, ControllerTemplate.captured(1, definition, planner), b"", planner, objects)
    plan.check_invariants()
    sources = chunk_sources(definition, stages)
    for _ in range(2):
        dispatcher = plan.dispatcher(definition)
        dispatcher.check_invariants()
        done: set[int] = set()
        scattered: dict[int, int] = {}
        out = [command for commands in dispatcher.take().values() for command in commands]
        while out:
            number, call, _, _, _ = out.pop(chance.randrange(len(out)))
            assert number not in done
            if call in sources:
                assert scattered[sources[call]] == definition.stages[stages[sources[call]]].partitions
            if call in sources.values():
                scattered[call] = scattered.get(call, 0) + 1
            done.add(number)
            dispatcher.completed([number])
            dispatcher.check_invariants()
            out += [command for commands in dispatcher.take().values() for command in commands]
        assert dispatcher.undone == 0
        assert len(done) == sum(map(len, plan.halves.values()))


def test_a_dispatcher_hands_out_nothing_while_it_is_held_and_refuses_a_task_that_is_done_twice() -> None:
    dispatcher = Dispatcher()
    dispatcher.hold()
    dispatcher.add(Node(0, 3, ()), call=0, stage=7, index=0)
    dispatcher.add(Node(1, 3, (0,)), call=1, stage=8, index=0)
    assert dispatcher.take() == {}
    dispatcher.release()
    assert dispatcher.take() == {3: [(0, 0, 7, 0, -1)]} and dispatcher.take() == {}
    dispatcher.completed([0])
    assert dispatcher.take() == {3: [(1, 1, 8, 0, -1)]}
    with pytest.raises(ProtocolError, match="task 0 of the block is done twice"):
        dispatcher.completed([0])


# ---- versions -----------------------------------------------------------------------------------------------


def two_datasets() -> tuple[Dataflow, Objects, dict[int, list[int]]]:
    """Datasets X (1) and Y (2) of three partitions, copies v (3) and w (4), workers 5, 6 and 7."""
    df = Dataflow(plane="inline", partitions=3, progress=False)
    for name in ("X", "Y"):
        df.partition(np.zeros(3), name=name)
    for name in ("v", "w"):
        df.replicate(np.zeros(1), name=name)
    owners = {0: [5], 1: [5, 6, 7], 2: [5, 6, 7]}
    return df, Objects(df._definition, (5, 6, 7), owners), owners


def test_datasets_that_are_neighbours_are_one_range_of_objects() -> None:
    _, objects, _ = two_datasets()
    assert objects.ranges((1, 2)) == ((1, 7),) and objects.ranges((0, 2)) == ((0, 1), (4, 7))
    assert objects.ranges(()) == ()
    assert [objects.place(number) for number in (0, 1, 6)] == [(0, 0), (1, 0), (2, 2)]
    assert objects.stale(objects.everywhere()) is FRESH


def test_a_partition_that_is_to_be_elsewhere_is_stale_until_it_is_brought_or_is_to_be_where_it_is() -> None:
    _, objects, owners = two_datasets()
    moved = {**owners, 1: [5, 5, 7]}
    objects.settle_on(moved)
    stale = objects.stale(objects.needed((1,), ()))
    assert stale.partitions.tolist() == [2] and objects.where[2] == 6
    assert objects.stale(objects.needed((2,), ())) is FRESH
    objects.settle_on(moved)
    assert objects.latest[2] == 2, "the same placement makes nothing newer"
    patch = Patch.of(1, objects, moved, stale)
    assert patch.copies[6].sends == [(1, 1, 5)] and patch.copies[5].gets == [(1, 1)]
    objects.settle_on(owners)
    assert objects.stale(objects.everywhere()) is FRESH
    objects.settle_on(moved)
    patch.applied(objects, moved)
    objects.check_invariants()
    assert objects.where[2] == 5 and objects.stale(objects.everywhere()) is FRESH


def test_a_copy_is_stale_when_another_worker_wrote_the_dataset_and_the_patch_comes_from_there() -> None:
    _, objects, owners = two_datasets()
    needed = objects.needed((), [(3, 5), (3, 6), (4, 7)])
    assert not objects.stale(needed)
    objects.wrote(3, (7,), 7)
    stale = objects.stale(needed)
    assert len(stale.rows) == 2 and not objects.is_latest(3, 5) and objects.is_latest(3, 7)
    patch = Patch.of(1, objects, owners, stale)
    assert patch.copies[7].sends == [(3, 0, 5), (3, 0, 6)] and patch.copies[5].gets == [(3, 0)]
    assert patch.fits(objects, owners, stale)
    objects.wrote(3, (7, 6), 6)
    assert not patch.fits(objects, owners, objects.stale(needed)), "worker 6 has it, and is where it comes from"
    objects.got(3, 5)
    assert not objects.stale(needed)
    objects.check_invariants()


def test_workers_that_join_have_nothing_and_columns_of_those_that_left_are_free() -> None:
    df, objects, owners = two_datasets()
    for worker in range(10, 20):
        objects.join(worker)
        assert not objects.is_latest(3, worker)
    objects.got(3, 12)
    assert objects.is_latest(3, 12) and objects.is_latest(3, 5)
    objects.leave(19)
    objects.join(21)
    assert objects.worker_of()[objects.column[21]] == 21 and not objects.is_latest(3, 21)
    df.replicate(np.zeros(1), name="z")
    df.partition(np.zeros(3), name="Z")
    objects.extend({**owners, 6: [12, 6, 7]})
    objects.check_invariants()
    assert objects.is_latest(5, 21) and objects.where[objects.starts[6]] == 12


def test_edits_that_do_not_fit_the_half_are_refused() -> None:
    half = WorkerHalf.installed(Install(0, 4, 0, (0,), (0,), [(1, ())]))
    for edits, what in ((Edits([2], [], []), "dropped"), (Edits([], [(1, ())], []), "added"),
                        (Edits([], [], [(2, ())]), "replaced")):  # fmt: skip
        with pytest.raises(ProtocolError, match=f"template 4: task . is to be {what}"):
            half.edit(edits)


def test_copies_are_sent_when_they_are_written_and_not_behind_tasks_that_were_ready_before() -> None:
    """Else all that read the copy would wait for the writer's other tasks."""
    df = Dataflow(plane="inline", partitions=6, progress=False)
    X, w = df.partition(np.zeros(6), name="X"), df.replicate(np.zeros(1), name="w")
    ran: list[str] = []

    class Notes:
        """Of what happened; what stages capture is not looked into."""

        def add(self, what: str) -> None:
            ran.append(what)

    notes = Notes()
    write = df.stage(writes=[w], name="write")(lambda w: notes.add("write"))
    long = df.stage(writes=[X], name="long")(lambda x: notes.add("long"))
    read = df.stage(reads=[w], writes=[X], name="read")(lambda w, x: None)

    def program() -> Any:
        write()
        long()
        read()
        df.barrier()

    df.run(df.barrier)
    world = CommandedWorld(df, 2)
    world.run(program, times=2)
    send = world.send

    def watched(sender: int, peer: int, message: Any) -> None:
        if min(sender, peer) >= 0:
            ran.append("sent")
        send(sender, peer, message)

    world.send = watched  # type: ignore[method-assign]
    ran.clear()
    world.run(program)
    assert ran[:2] == ["write", "sent"] and ran.count("long") == 6
