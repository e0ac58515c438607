"""Paper 001 (execution templates) §4: data model, generation, worker templates, patches, load, faults."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, CommandingCore, Event, Phase, Switches
from frontends.dataflow.commands import (
    NONE,
    Copy,
    Dispatch,
    Install,
    Instantiate,
)
from frontends.dataflow.control_messages import CONTROLLER
from frontends.dataflow.planning import TRANSFERS_FROM, transfer_of
from frontends.dataflow.values import copied
from tests.support.dataflow_commanded_world import CommandedWorld
from tests.support.dataflow_random import random_program
from tests.support.nimbus import figure_4, figure_5


def inline(partitions: int = 4) -> Dataflow:
    return Dataflow(plane="inline", partitions=partitions, progress=False)


def orders(world: CommandedWorld, kind: Any) -> list[tuple[int, Any]]:
    """What the controller sent of the kind, and to whom; the log is empty then."""
    assert world.log is not None
    sent = [
        (peer, message) for sender, peer, message in world.log if sender == CONTROLLER and isinstance(message, kind)
    ]
    world.log.clear()
    return sent


# ---- 4.1 data model ---------------------------------------------------------------------------------------


def test_4_1_1_tasks_mutate_data_in_place_and_objects_keep_their_names() -> None:
    """ "Multiple iterations of a loop can access the same objects and reuse their identifiers"."""
    df = inline(1)
    X = df.partition(np.zeros(2), name="X")
    step = df.stage(writes=[X], name="step")(_add_one)
    world = CommandedWorld(df, 1)
    world.run(step)
    array = world.value(X._spec.id, 0)
    for _ in range(3):
        world.run(step)
    assert world.value(X._spec.id, 0) is array and array.tolist() == [4, 4]


def _add_one(x: Any) -> None:
    x += 1


def test_4_1_1_copies_of_an_object_are_not_always_consistent_and_readers_receive_the_latest() -> None:
    """ "There can be multiple copies of a data object. However, since objects are mutable they are not always
    consistent. If one worker writes to its copy of an object, other workers who later read it will need to receive the
    latest update"."""
    world, program, numbers = figure_5(Switches(closing=False))
    world.run(program)
    one = [core.store.value((numbers["one"], 0)).item() for core in world.cores.values()]
    assert one == [1, 66, 1]
    world.run(program)
    assert world.cores[2].store.value((numbers["one"], 0)).item() == 66


def test_figure_5b_a_dependency_across_workers_is_a_send_and_a_receive() -> None:
    """ "Task B on worker 2 must complete before task C can run on worker 1. Nimbus represents this dependency by
    introducing a pair of control tasks, a send task on worker 2 and a receive task on worker 1, and inserting the
    receive task as a dependency in C"."""
    world, program, numbers = figure_5(Switches(closing=False))
    world.run(program)
    world.run(program)
    halves = {peer: dict(message.tasks) for peer, message in orders(world, Install)}
    a, b, c = range(3)
    (send,) = (number for number in halves[2] if number >= TRANSFERS_FROM)
    assert halves.keys() == {1, 2} and transfer_of(send)[:4] == (2, numbers["three"], 1, False)
    assert halves[2] == {b: (), send: (b,)}
    assert halves[1].keys() == {a, send + 1, c} and transfer_of(send + 1).receives
    assert set(halves[1][c]) == {a, send + 1} and halves[1][send + 1] == ()


def test_4_1_2_an_object_that_a_task_writes_waits_for_those_that_read_it() -> None:
    """C writes object 1 at worker 1, where A reads it; B reads the copy of worker 2 at any time."""
    world, program, _ = figure_5()
    world.run(program)
    (plan,) = world.controller._plans.values()
    assert 0 in plan.halves[1][2] and 1 not in plan.halves[1][2]


# ---- 4.2 generation ---------------------------------------------------------------------------------------


def test_4_2_templates_are_of_basic_blocks() -> None:
    """ "A basic block is a code sequence in the driver program with only one entry point and no branches except at the
    exit. For example, in Figure 4, there are two basic blocks"."""
    df = inline()
    program = figure_4(df, inner=4, outer=3)
    world = CommandedWorld(df, 2)
    world.run(program)
    world.check_equal_to_inline()
    names = [
        {df._definition.stages[stage].name for stage in template.stages}
        for template in world.controller._templates.values()
    ]
    assert len(names) == 2 and "optimising" in names[0] and "estimating" in names[1]
    assert world.controller.counts[Event.INSTANTIATED] == 4 * 3 + 3 - 2


def test_4_2_for_every_placement_a_separate_worker_template_is_installed_of_one_controller_template() -> None:
    """ "Two invocations of the same controller template can result in two different partitioning of tasks among
    workers. For every partitioning strategy a separate worker template is installed on the workers"."""
    df = inline(8)
    X = df.partition(np.arange(8.0), name="X")
    step = df.stage(writes=[X], name="step")(_add_one)
    world = CommandedWorld(df, 4)
    world.log = []
    for placement in ((0, 1, 2, 3), (3, 2, 1, 0), (0, 1, 2, 3)):
        for index in range(8):
            world.controller.move((X._spec.id, index), placement[index // 2])
        world.run(step, times=2)
    assert len(world.controller._templates) == 1 and len(world.controller._plans) == 2
    assert len(orders(world, Install)) == 8 and world.controller.counts[Event.PLACEMENT_CACHED] == 1
    assert np.array_equal(np.concatenate([world.value(X._spec.id, index) for index in range(8)]), np.arange(8.0) + 6)


def test_4_2_1_a_controller_template_has_the_tasks_and_what_they_wait_for_and_says_nothing_of_workers() -> None:
    """Figure 6(a). "It stores task dependencies and data access patterns"."""
    df = inline(2)
    program = figure_4(df)
    made = []
    for workers in (1, 2):
        world = CommandedWorld(df, workers)
        world.run(program)
        made.append([(t.stages, t.starts, t.before, t.sources) for t in world.controller._templates.values()])
        for template in world.controller._templates.values():
            template.check_invariants()
    assert made[0] == made[1]


def test_4_2_1_the_first_time_tasks_are_both_scheduled_and_added_to_the_template() -> None:
    """ "As the controller receives each subsequent task, it both schedules it normally and adds it to the template"."""
    world, program, _ = figure_5()
    world.run(program)
    assert sum(len(message.commands) for _, message in orders(world, Dispatch)) == 3 + 2 + 2  # With two copies.
    assert len(world.controller._templates) == 1


def test_4_2_2_each_worker_has_its_half_and_the_controller_all_of_them() -> None:
    """ "The first half exists at the controller and represents the entire computation across all of the workers […] The
    second half is distributed among the workers"."""
    df, program = random_program(5, repeats=10)
    world = CommandedWorld(df, 3, Random(5))
    world.run(program)
    for plan in world.controller._plans.values():
        plan.check_invariants()
        for worker, revision in plan.revisions.items():
            half = world.cores[worker]._installed[plan.number].half
            assert half.tasks == plan.halves[worker] and half.revision == revision
            graph, _ = half.graph(df._definition)
            graph.check_invariants()


# ---- 4.3 patches ------------------------------------------------------------------------------------------


def test_figure_6_if_the_same_template_is_invoked_again_object_1_is_copied_to_worker_2() -> None:
    """ "If immediately after the template in Figure 6(b) the same template is invoked, then controller needs to
    transfer the latest update of first object (updated by task t3) to worker 2 to satisfy the preconditions"."""
    world, program, numbers = figure_5(Switches(closing=False))
    world.run(program)
    assert world.controller.objects.is_latest(numbers["one"], 1)
    assert not world.controller.objects.is_latest(numbers["one"], 2)
    assert world.log is not None
    world.log.clear()
    world.run(program)
    patched = [message for _, _, message in world.log if isinstance(message, Copy) and message.tag == NONE]
    assert [(message.dataset, message.value.item()) for message in patched] == [(numbers["one"], 66)]
    copies = {peer: message.copies for peer, message in orders(world, Instantiate)}
    assert copies[1].sends == [(numbers["one"], 0, 2)] and copies[2].gets == [(numbers["one"], 0)]
    world.times = 2
    world.check_equal_to_inline()


def test_4_3_the_templates_assumption_is_that_objects_1_and_3_at_worker_2_are_the_latest() -> None:
    """ "The template on worker 2 assumes that data objects 1 and 3 contain the latest update"."""
    world, program, numbers = figure_5()
    world.run(program)
    (plan,) = world.controller._plans.values()
    datasets = {row: dataset for dataset, row in world.controller.objects.row.items()}
    workers = world.controller.objects.worker_of()
    needed = {(datasets[r], workers[c]) for r, c in zip(plan.needed.rows, plan.needed.columns, strict=True)}
    assert {dataset for dataset, worker in needed if worker == 2} == {numbers["one"], numbers["three"]}
    assert {dataset for dataset, worker in needed if worker == 1} == {numbers["one"]}


def test_4_3_back_to_back_a_template_leaves_its_inputs_the_latest_and_is_neither_validated_nor_patched() -> None:
    """ "For the common case of a template executing twice back to back, the controller ensures that the input objects
    to a template hold the latest updates when the template completes […] the controller can bypass both validation and
    patching"."""
    world, program, numbers = figure_5()
    world.run(program)
    assert all(world.controller.objects.is_latest(numbers["one"], worker) for worker in (1, 2))
    world.run(program, times=5)
    counts = world.controller.counts
    assert counts[Event.BACK_TO_BACK] == 5 and counts[Event.VALIDATED] == counts[Event.PATCHED] == 0
    world.times = 6
    world.check_equal_to_inline()


def test_4_3_a_block_that_is_entered_from_several_places_has_a_patch_for_each() -> None:
    """ "For basic blocks that can be entered from multiple places in the program […] the controller generates a
    separate template for each possible control flow": here the template is one, and what differs, the patch, is kept
    for each block before."""
    df = inline(2)
    w, v = df.replicate(np.zeros(1), name="w"), df.replicate(np.zeros(1), name="v")
    source, X = df.single(np.ones(1), name="source"), df.partition(np.zeros(2), name="X")
    write_w = df.stage(reads=[source], writes=[w], name="write_w")(_add)
    write_v = df.stage(reads=[source], writes=[v], name="write_v")(_add)
    read = df.stage(reads=[w, v], writes=[X], name="read")(_add_both)
    df.run(df.barrier)

    def program() -> Any:
        for way in (write_w, write_v, write_w, write_v, write_w, write_w, write_v):
            way()
            df.barrier()
            read()
            df.barrier()

    world = CommandedWorld(df, 2)
    world.run(program, times=2)
    world.check_equal_to_inline()
    assert world.controller.counts[Event.PATCHED] == 2
    assert world.controller.counts[Event.PATCH_CACHED] == world.controller.counts[Event.STALE] - 2 >= 8


def _add(a: Any, b: Any) -> None:
    b += a


def _add_both(a: Any, b: Any, c: Any) -> None:
    c += 10 * c + a + 2 * b


def test_4_3_only_after_patching_is_it_safe_to_invoke_the_template_again() -> None:
    """Without: the answer is another."""
    world, program, _ = figure_5(Switches(closing=False, validation=False))
    world.run(program)
    world.run(program)
    world.times = 2
    with pytest.raises(AssertionError):
        world.check_equal_to_inline()


# ---- 4.4 load and faults ----------------------------------------------------------------------------------


def test_4_4_tasks_go_from_busy_workers_to_others_and_templates_change_for_these_alone() -> None:
    """ "It redistributes tasks across the workers, regenerating templates for any workers whose load has changed"."""
    df = inline(8)
    X = df.partition(np.arange(8.0), name="X")
    step = df.stage(writes=[X], name="step")(_add_one)
    world = CommandedWorld(df, 4)
    world.run(step, times=2)
    world.log = []
    used = {(X._spec.id, index): 5.0 if index < 2 else 1.0 for index in range(8)}
    for _ in range(2):
        world.balance(used)
    world.run(step)
    edits = {peer: message.edits for peer, message in orders(world, Instantiate)}
    assert sorted(worker for worker, made in edits.items() if made is not None) == [0, 1]
    assert len(edits[0].drop) == len(edits[1].add) == 1


def test_4_4_workers_are_put_back_to_a_checkpoint_in_a_new_epoch() -> None:
    """ "The controller inserts tasks that commit data objects to durable storage […] If a worker fails […] It restores
    the lost objects to their last checkpoint as well as any other objects which have been modified since […] It then
    restarts execution, regenerating any worker templates as needed"."""
    for switches in (ALL_ON, CENTRAL):
        df = inline()
        program = figure_4(df)
        world = CommandedWorld(df, 3, Random(2), switches=switches)
        world.run(program)
        assert world.controller.phase is Phase.IDLE
        world.controller.store(7)
        while any(world.links.values()):
            world.deliver(next(link for link, queue in world.links.items() if queue))
        places = {(spec.id, index) for spec in df._definition.datasets for index in range(spec.partitions)}
        assert world.stored[7].keys() == places
        again = CommandedWorld(df, 2, Random(3), switches=switches)  # One worker is lost.
        for (dataset, index), value in world.stored[7].items():
            for core in again.cores.values():
                if (dataset, index) in core.held or dataset in df._definition.copies():
                    core._put((dataset, index), copied(value))
        again.run(program)
        again.times = 2
        again.check_equal_to_inline()


def test_4_4_what_is_left_of_the_epoch_before_is_not_heard() -> None:
    world, program, _ = figure_5()
    world.run(program)
    core = CommandingCore(world.definition, [1, 2], world.controller.placed, _Nobody(), epoch=1)
    assert world.log is not None
    for sender, peer, message in world.log:
        if peer == CONTROLLER:
            core.receive(sender, message)
    assert core.phase is Phase.IDLE and not core.counts


class _Nobody:
    """An outbox that nothing is put into."""

    def send(self, peer: int, message: Any) -> None:
        raise AssertionError(message)


def test_4_4_a_worker_that_leaves_gives_all_it_has_to_others_and_one_that_joins_is_given_work() -> None:
    df = inline(8)
    program = figure_4(df)
    world = CommandedWorld(df, 2, Random(1))
    world.run(program)
    joined = 2
    world._enter(joined)
    world.controller.join(joined)
    world.controller.leave(0)
    world.run(program)
    assert world.cores.keys() == {1, 2} and world.controller.workers == [1, 2]
    assert world.cores[joined].tasks_run > 0
    world.times = 2
    world.check_equal_to_inline()
