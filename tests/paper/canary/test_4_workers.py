"""Paper 000 (Canary) §4: workers spawn tasks, exchange data, keep one view of the program, and move partitions."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow, InvalidProgram
from frontends.dataflow.blocks import derive
from frontends.dataflow.calls import Calls
from frontends.dataflow.messages import Partition
from frontends.dataflow.routing import RULES, Action, Newer, Presence
from tests.support.dataflow_programs import logistic_data
from tests.support.dataflow_random import random_program
from tests.support.dataflow_world import World


def logistic(partitions: int = 4, rounds: int = 3) -> tuple[Dataflow, Any]:
    """Figure 2: training data, local weight, local gradient, global gradient, global weight."""
    features, labels = logistic_data(rows=40)
    columns = features.shape[1]
    df = Dataflow(plane="inline", partitions=partitions, progress=False)
    TD, TL = df.partition((features, labels), name="training_data")
    LW, LG = df.empty(columns, like=TD, name="local_weight"), df.empty(columns, like=TD, name="local_gradient")
    GG, GW = df.single(np.zeros(columns), name="global_gradient"), df.single(np.zeros(columns), name="global_weight")
    count = df.single(np.zeros(1))

    @df.scatter(reads=[GW], to=LW)
    def scatterW(weight: Any) -> Any:
        for index in range(partitions):
            yield index, weight

    @df.gather(scatterW, writes=[LW])
    def gatherW(chunks: Any, weight: Any) -> None:
        weight[:] = chunks[0]

    @df.stage(reads=[TD, TL, LW], writes=[LG])
    def gradient(x: Any, y: Any, weight: Any, g: Any) -> None:
        g[:] = x.T @ (1 / (1 + np.exp(-(x @ weight))) - y)

    @df.scatter(reads=[LG], to=GG)
    def scatterG(g: Any) -> Any:
        yield 0, g

    @df.gather(scatterG, writes=[GG])
    def gatherG(chunks: Any, g: Any) -> None:
        g[:] = np.sum(chunks, axis=0)

    @df.stage(reads=[GG], writes=[GW, count])
    def update(g: Any, weight: Any, count: Any) -> None:
        weight -= 0.01 * g
        count += 1

    @df.signal(on=count)
    def again(count: Any) -> Any:
        return count[0] % rounds != 0

    def program() -> Any:
        while True:
            scatterW()
            gatherW()
            gradient()
            scatterG()
            gatherG()
            update()
            if not again():
                return GW

    return df, program


def test_4_the_papers_logistic_regression_runs_alike_on_any_number_of_workers() -> None:
    """Figure 2's program, while partitions move."""
    for workers in (1, 2, 3, 5):
        df, program = logistic()
        world = World(df, program, workers, Random(workers))
        world.run(moves=10)
        world.check_equal_to_inline()


def test_4_1_stages_are_enumerated_and_say_where_the_program_is() -> None:
    """ "The worker enumerates the stages in the program and uses these as identifiers to specify program position"."""
    df, program = logistic()
    df._freeze()
    names = [stage.name for stage in df._definition.stages]
    assert names == ["scatterW", "gatherW", "gradient", "scatterG", "gatherG", "update", "again"]
    blocks: list[Any] = []

    def run_block(block: Any) -> bool:
        blocks.append(block)
        return len(blocks) < 3

    df._called(program, Calls(run_block))
    assert [block.stages for block in blocks] == [tuple(range(7))] * 3
    assert [block.first_call for block in blocks] == [0, 7, 14]


def test_4_1_scatter_g_waits_for_the_gradient() -> None:
    """ "The scatterG communication stage in Figure 3 cannot run until the gradient computational stage has
    completed": of its own partition, whatever the others do."""
    df, _ = logistic(partitions=2)
    counts = df._definition.group_partitions()
    slots = [(group, index) for group, count in counts.items() for index in range(count)]
    graph = derive(df._definition, tuple(range(7)), slots)
    for index in range(2):
        assert graph.after[graph.at[2, index]] == (graph.at[3, index],)
        assert graph.needs[graph.at[3, index]] == 1


def test_4_1_stages_out_of_order_equal_those_in_order() -> None:
    """ "Programs appear to run sequentially, but underneath the runtime may execute stages out of order"."""
    df = Dataflow(plane="inline", partitions=2, progress=False)
    ran: list[str] = []
    A, B = df.partition(np.arange(2.0)), df.partition(np.arange(2.0))

    class Notes:
        def add(self, name: str) -> None:
            ran.append(name)

    notes = Notes()
    first = df.stage(writes=[A], name="first")(lambda a: notes.add("first"))
    second = df.stage(writes=[A], name="second")(lambda a: notes.add("second"))
    apart = df.stage(writes=[B], name="apart")(lambda b: notes.add("apart"))

    def program() -> Any:
        first()
        second()
        apart()

    df.run(program)
    assert ran == ["first", "first", "apart", "apart", "second", "second"]


def test_4_2_scatter_moves_data_between_partitionings_and_sends_no_empty_chunk() -> None:
    """ "The input partitioning does not have to be the same as the output partitioning […] any non-empty scatter
    partitions"."""
    df = Dataflow(plane="inline", partitions=6, progress=False)
    X, Y = df.partition(np.arange(6)), df.empty(1, partitions=3, fill=0)

    @df.scatter(reads=[X], to=Y)
    def send(x: Any) -> Any:
        for j in range(3):
            yield j, x[x % 3 == j]

    @df.gather(send, writes=[Y])
    def collect(chunks: Any, y: Any) -> None:
        y[0] = 10 * len(chunks) + sum(int(chunk[0]) for chunk in chunks)

    def program() -> Any:
        send()
        collect()
        return Y

    assert df.run(program).tolist() == [20 + 0 + 3, 20 + 1 + 4, 20 + 2 + 5]
    world = World(df, program, 3, Random(1))
    world.run()
    assert 0 < world.sent["Chunk"] <= 6


def test_4_2_a_receiver_without_the_partition_holds_what_is_newer_and_forwards_what_is_older() -> None:
    """ "If […] the sender has a newer version of the partition map entry, it concludes that it will soon own the
    partition and so holds the scatter data. If the sender has an older version […], the receiver forwards the data"."""
    assert RULES[Presence.AWAY, Newer.SENDERS] is Action.HOLD
    assert RULES[Presence.AWAY, Newer.MINE] is Action.FORWARD
    held = forwarded = 0
    for seed in range(12):
        df, program = random_program(seed)
        world = World(df, program, 4, Random(seed + 50))
        world.run(moves=60)
        world.check_equal_to_inline()
        held += world.counts[Action.HOLD]
        forwarded += world.counts[Action.FORWARD]
    assert held > 10 and forwarded > 5


def test_4_2_the_controller_increments_the_version_of_changed_entries() -> None:
    """ "When the controller sends a partition map update, it increments the version number of any changed entries"."""
    df, program = logistic()
    world = World(df, program, 2, Random(1))
    before = dict(world.placed.items())
    slot = next(slot for slot, entry in before.items() if entry.worker == 0)
    world.move(slot, 1)
    changed = {other: entry.version for other, entry in world.placed.items() if entry != before[other]}
    assert changed == {slot: 2}


def test_4_2_a_signal_works_on_a_single_partition() -> None:
    """ "This dataset must have a single partition (any other partitioning is a runtime error)"."""
    df = Dataflow(plane="inline", partitions=2, progress=False)
    with pytest.raises(InvalidProgram, match="is not a dataset of one partition"):
        df.signal(on=df.empty(1))(lambda x: True)


def test_4_2_the_worker_with_the_partition_tells_every_other_what_a_signal_said() -> None:
    """ "After the worker which has the input partition executes the function, it broadcasts the result to every other
    worker in the system"."""
    df, program = logistic(rounds=3)
    world = World(df, program, 4, Random(1))
    world.run()
    assert world.sent["Told"] == 3 * 3  # Three signals, to three others.


def test_4_3_a_worker_finds_its_next_tasks_from_its_own_partitions_alone() -> None:
    """ "The metadata that workers maintain is sufficient for them to quickly infer and spawn tasks locally": of two
    workers the tasks are disjoint, and together those of one that has everything."""
    df, _ = logistic(partitions=4)
    definition, calls = df._definition, tuple(range(7))
    slots = [(group, index) for group, count in definition.group_partitions().items() for index in range(count)]
    everything = derive(definition, calls, slots)
    halves = [derive(definition, calls, slots[::2]), derive(definition, calls, slots[1::2])]
    made = [{(task.call, task.partition) for task in graph.tasks} for graph in halves]
    assert not made[0] & made[1]
    assert made[0] | made[1] == {(task.call, task.partition) for task in everything.tasks}


def test_4_4_a_flagged_partition_runs_no_task_and_leaves_with_its_last_stage() -> None:
    """ "The worker […] will not spawn any new tasks that access that partition […] It includes, as metadata, the last
    stage to write to the partition": here the last call on each array, as some stages touch only some of them."""
    moved: list[Partition] = []
    for seed in range(10):
        df, program = logistic()
        world = World(df, program, 3, Random(seed))
        for core in world.cores.values():
            links, send = core.outbox, core.outbox.send

            def watched(worker: int, message: Any, send: Any = send) -> None:
                if isinstance(message, Partition):
                    moved.append(message)
                send(worker, message)

            links.send = watched  # type: ignore[method-assign]
        world.run(moves=6)
        world.check_equal_to_inline()
    assert any(len(set(partition.last.values())) > 1 for partition in moved)  # In the middle of a block.


def test_4_4_a_move_costs_time_and_changes_no_answer() -> None:
    """ "The worst that can happen is the job will run an additional iteration with a load imbalance"."""
    answers = set()
    for seed in range(6):
        df, program = logistic()
        world = World(df, program, 3, Random(seed))
        world.run(moves=4 * seed)
        world.check_equal_to_inline()
        answers.add(world.df.run(program).tobytes())
    assert len(answers) == 1
