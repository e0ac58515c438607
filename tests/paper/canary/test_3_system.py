"""Paper 000 (Canary) §3: the controller places partitions, workers make the tasks of them."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow, InvalidProgram
from frontends.dataflow.control_messages import GiveBack
from frontends.dataflow.messages import MapUpdate, Move
from frontends.dataflow.placement import Balancer, initial, loads
from tests.support.dataflow_random import random_program
from tests.support.dataflow_world import World


def inline(partitions: int = 4) -> Dataflow:
    return Dataflow(plane="inline", partitions=partitions, progress=False)


def counting(df: Dataflow, rounds: int) -> Any:
    """A program that adds to each partition, and to a count until it is `rounds`."""
    X, count = df.partition(np.arange(8.0)), df.single(np.zeros(1))

    @df.stage(writes=[X])
    def step(x: Any) -> None:
        x *= 1.5

    @df.stage(writes=[count])
    def tick(count: Any) -> None:
        count += 1

    @df.signal(on=count)
    def more(count: Any, *, below: int) -> Any:
        return count[0] < below

    def program() -> Any:
        while more(below=rounds):
            step()
            tick()

    return program


def test_3_a_program_in_which_nothing_moves_is_run_without_the_controller() -> None:
    """ "If every worker knows the placement of every data partition and partitions never move, workers can run and
    complete an entire job without any controller coordination"."""
    df = inline()
    world = World(df, counting(df, rounds=50), 3, Random(1))
    told: list[object] = []
    world._tell = lambda worker, message: told.append(message)  # type: ignore[method-assign]
    world.run()
    assert {type(message) for message in told} == {GiveBack}  # At the end: what the program returned.
    assert sum(core.tasks_run for core in world.cores.values()) == 50 * 5 + 51


def test_3_1_a_worker_runs_the_tasks_of_the_partitions_that_it_has() -> None:
    """ "By placing the data partitions a task uses onto a worker, the controller implicitly assigns that task to that
    worker"."""
    df = inline()
    ran: list[tuple[int, float]] = []
    now = [0]
    X = df.partition(np.arange(4.0))

    class Notes:
        def add(self, x: Any) -> None:
            ran.append((now[0], float(x[0])))

    notes = Notes()

    @df.stage(reads=[X])
    def step(x: Any) -> None:
        notes.add(x)

    world = World(df, step, 2, Random(1))
    work = world.work

    def watched(worker: int) -> bool:
        now[0] = worker
        return work(worker)

    world.work = watched  # type: ignore[method-assign]
    world.run()
    held = {index: world.placed[df._definition.groups[X._spec.id], index].worker for index in range(4)}
    assert sorted(ran) == sorted((held[int(index)], index) for _, index in ran) and len(ran) == 4


def test_3_2_variables_of_one_stage_have_the_same_partitioning() -> None:
    """ "If an operator takes multiple variables as input, each of those variables must have the same partitioning"."""
    df = inline()
    with pytest.raises(InvalidProgram, match="different partitionings"):
        df.stage(reads=[df.empty(1, partitions=2), df.empty(1, partitions=3)])(lambda a, b: None)


def test_3_2_there_are_no_variables_but_datasets() -> None:
    """ "There is no notion of a scalar variable": the value of a dataset is not to be had in the program, and a
    "dataset that has a single partition" takes the place of one."""
    df = inline()
    count = df.single(0)
    with pytest.raises(InvalidProgram, match="programs branch on signals"):
        df.run(lambda: 1 if count else 0)


def test_3_2_all_workers_take_the_same_branches() -> None:
    """ "Every worker must make the same runtime control flow decision, i.e., running the same number of iterations and
    taking the same conditional branch"."""
    for seed in range(5):
        df, program = random_program(seed)
        world = World(df, program, 3, Random(seed))
        world.run(moves=20)
        said = list(world.said.values())
        assert said[0] == said[1] == said[2] and len(said[0]) >= 3


def test_3_3_a_partition_is_named_by_its_variable_and_index_and_is_at_one_worker() -> None:
    """ "A data partition is named by a (name,index) tuple […] In-memory partitions are not replicated"."""
    df, program = random_program(3)
    world = World(df, program, 4, Random(3))
    world.run(moves=30)
    for spec in df._definition.datasets:
        if spec.kind == "replicated":
            continue
        for index in range(spec.partitions):
            assert sum((spec.id, index) in core.store for core in world.cores.values()) == 1


def test_3_3_a_failure_rolls_the_computation_back_to_the_snapshot() -> None:
    """ "The controller asks other workers to restore their partitions as well, rolling the entire computation back to
    the snapshot"."""
    gone_back = 0
    for seed in range(12):
        df, program = random_program(seed)
        world = World(df, program, 3, Random(seed))
        world.run(moves=5, snapshots=4, crashes=2)
        gone_back += world.epoch
        world.check_equal_to_inline()
    assert gone_back >= 5


def test_3_3_the_slow_workers_partitions_move_to_a_lightly_loaded_one() -> None:
    """ "The controller chooses another (lightly loaded) worker and moves some of the slow worker's partitions to the
    lightly loaded one": by "how much CPU time they have spent computing tasks on each partition"."""
    placed = initial({1: 12}, [0, 1, 2])
    balancer = Balancer()
    for _ in range(20):
        used = {slot: 2.0 if worker == 0 else 1.0 for slot, worker in placed.items()}  # Worker 0 is half as fast.
        move = balancer.observe(used, placed, [0, 1, 2])
        if move is not None:
            assert move.source == 0
            placed[move.slot] = move.destination
    used = {slot: 2.0 if worker == 0 else 1.0 for slot, worker in placed.items()}
    load = loads(used, placed, [0, 1, 2])
    assert load == {0: 6.0, 1: 5.0, 2: 4.0} or max(load.values()) <= 6


def test_3_3_the_workers_agree_on_moves_by_updates_in_any_order() -> None:
    """ "Partition map updates […] do not need to be strongly consistent": the worlds deliver them late, and in other
    orders to each worker."""
    df, program = random_program(11)
    world = World(df, program, 4, Random(5))
    world.run(moves=60)
    world.check_equal_to_inline()
    for core in world.cores.values():
        assert dict(core.placed.items()) == dict(world.placed.items())


def test_3_3_arrays_that_a_stage_takes_together_move_together() -> None:
    """ "Consider a stage S that has two inputs A and B […] the controller would decide to migrate either A1 and B1 or
    A2 and B2 simultaneously"."""
    df = inline(partitions=2)
    A, B = df.partition(np.arange(2.0), name="A"), df.partition(np.arange(2.0), name="B")

    @df.stage(reads=[A], writes=[B])
    def both(a: Any, b: Any) -> None:
        b += a

    def program() -> Any:
        both()
        df.barrier()
        both()

    df._freeze()
    world = World(df, program, 2, Random(2))
    assert set(world.placed) == {(0, 0), (1, 0), (1, 1)}  # Home, and one group of both.
    world.run(moves=5)
    for core in world.cores.values():
        assert {index for dataset, index in core.store._values if dataset == 1} == {
            index for dataset, index in core.store._values if dataset == 2
        }
    world.check_equal_to_inline()


def test_3_3_workers_store_their_partitions_at_a_stage_that_is_a_barrier() -> None:
    """ "The selected stage must be a stage that acts as a barrier": the wish for a snapshot rides on a signal."""
    df = inline()
    world = World(df, counting(df, rounds=10), 3, Random(4))
    world.snapshot()
    world.run()
    ((key, values),) = world.files.items()
    assert key in world.whole and len(values) == len({*values}) >= 4 + 1 + 1
    world.check_cut(key)


def test_3_4_a_balanced_job_needs_nothing_of_the_controller() -> None:
    """ "If a job is executing smoothly and is well balanced, a controller does little more than periodically collect
    performance information"."""
    placed, balancer = initial({1: 40, 41: 1}, range(5)), Balancer()
    used = dict.fromkeys(placed, 1.0)
    assert all(balancer.observe(used, placed, range(5)) is None for _ in range(100))


def test_3_1_moves_are_two_orders_and_updates() -> None:
    """ "Updating the partition map, sending those updates to every worker, and sending control messages to the workers
    to perform the transfer"."""
    df = inline()
    world = World(df, counting(df, rounds=30), 3, Random(1))
    told: list[object] = []
    tell = world._tell
    world._tell = lambda worker, message: (told.append(message), tell(worker, message))[1]  # type: ignore[method-assign]
    slot = next(slot for slot in world.placed if world.placed[slot].worker == 0 and slot[0])
    world.move(slot, 2)
    world.run()
    during = [type(message) for message in told if not isinstance(message, GiveBack)]
    assert during == [Move, MapUpdate, MapUpdate, MapUpdate]
    assert world.sent["Give"] == world.sent["Partition"] == 1
    world.check_equal_to_inline()
