"""The tasks of a block, in the order that touches demand, and the loop that runs them."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.dataflow.blocks import STOP, BoundTask, Cache, Graph, Run, derive, run_ready
from frontends.dataflow.calls import chunk_sources, rolled
from frontends.dataflow.errors import InvalidProgram, StageReturned
from frontends.dataflow.stages import DatasetKind, Definition, Filled, StageKind, StageSpec, split_datasets


def declared() -> Definition:
    """Datasets a, b and c of three partitions, s and t single, w replicated."""
    made = Definition()
    for name, kind, count in [
        ("a", DatasetKind.PARTITIONED, 3),
        ("b", DatasetKind.PARTITIONED, 3),
        ("c", DatasetKind.PARTITIONED, 3),
        ("s", DatasetKind.SINGLE, 1),
        ("t", DatasetKind.SINGLE, 1),
        ("w", DatasetKind.REPLICATED, 1),
    ]:
        made.add_dataset(name, kind, count, Filled(((),) * count, "<f8", 0))
    return made


A, B, C, S, T, W = 1, 2, 3, 4, 5, 6


def stage(
    definition: Definition,
    name: str,
    kind: StageKind = StageKind.COMPUTE,
    reads: tuple[int, ...] = (),
    writes: tuple[int, ...] = (),
    to: int | None = None,
    scatter: StageSpec | None = None,
) -> StageSpec:
    also = () if scatter is None or scatter.to is None else (scatter.to,)
    split = split_datasets(definition, name, reads, writes, also)
    number = None if scatter is None else scatter.id
    return definition.add_stage(StageSpec(-1, name, kind, None, reads, writes, *split, to=to, scatter=number))


def all_slots(definition: Definition) -> list[tuple[int, int]]:
    return [(group, index) for group, count in definition.group_partitions().items() for index in range(count)]


def edges(graph: Graph) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    """Each edge as two (call, partition)."""
    named = [(task.call, task.partition) for task in graph.tasks]
    return {(named[task], named[follower]) for task, after in enumerate(graph.after) for follower in after}


def test_touches_of_a_partition_happen_in_the_order_of_the_program_reads_too() -> None:
    definition = declared()
    write_a = stage(definition, "write a", writes=(A,))
    read_ab = stage(definition, "read a, write b", reads=(A,), writes=(B,))
    read_a = stage(definition, "read a", reads=(A,))
    graph = derive(definition, (write_a.id, read_ab.id, read_a.id), all_slots(definition))
    graph.check_invariants()
    assert edges(graph) == {((call, i), (call + 1, i)) for call in (0, 1) for i in range(3)}
    assert [graph.tasks[task].call for task in graph.ready()] == [0, 0, 0]


def test_datasets_that_a_stage_touches_together_are_one_group() -> None:
    definition = declared()
    assert definition.group_partitions() == {0: 1, A: 3, B: 3, C: 3, S: 1, T: 1}
    stage(definition, "a and b", reads=(A, W), writes=(B,))
    scatter = stage(definition, "to c", StageKind.SCATTER, reads=(B,), to=C)
    stage(definition, "into c", StageKind.GATHER, writes=(A,), scatter=scatter)
    assert definition.group_partitions() == {0: 1, A: 3, S: 1, T: 1}
    assert definition.members(A) == (A, B, C) and definition.copies() == (W,)
    assert definition.group_of(W) == -1
    stage(definition, "s alone", writes=(S,))
    stage(definition, "copies alone", writes=(W,))
    assert definition.stages[-1].touches == (0,)  # Of home.


def test_the_group_of_a_stage_that_is_replaced_stays() -> None:
    definition = declared()
    stage(definition, "x", reads=(A,), writes=(B,))
    assert stage(definition, "x", writes=(B,)).id == 0
    assert definition.groups[A] == definition.groups[B] and definition.version == 2


def test_a_copy_is_written_after_its_readers_and_read_after_its_writer() -> None:
    definition = declared()
    read = stage(definition, "read", reads=(A, W))
    write = stage(definition, "write", reads=(S,), writes=(W,))
    graph = derive(definition, (read.id, write.id, read.id), all_slots(definition))
    graph.check_invariants()
    before = {((0, i), (1, 0)) for i in range(3)}
    later = {((1, 0), (2, i)) for i in range(3)} | {((0, i), (2, i)) for i in range(3)}
    assert edges(graph) == before | later and not graph.receives


def test_a_worker_without_the_writer_receives_in_its_place() -> None:
    definition = declared()
    read = stage(definition, "read", reads=(A, W))
    write = stage(definition, "write", reads=(S,), writes=(W,))
    calls = (read.id, write.id, read.id)
    graph = derive(definition, calls, [(A, 1)])
    graph.check_invariants()
    receive = graph.receives[1, W]
    assert graph.needs == [0, 2, 2] and graph.after == [(1, 2), (2,), ()] and receive == 1
    had = derive(definition, calls, [(A, 1)], copied=lambda call, copy: True)
    assert not had.receives and [task.call for task in had.tasks] == [0, 2]


def test_tasks_that_were_done_elsewhere_are_left_out_and_awaited_ones_wait() -> None:
    definition = declared()
    step = stage(definition, "step", writes=(A,))
    calls = (step.id, step.id)
    arrived = derive(definition, calls, [(A, 0), (A, 2)], done=lambda call, stage, index: (call, index) == (0, 2))
    assert [(task.call, task.partition) for task in arrived.tasks] == [(0, 0), (1, 0), (1, 2)]
    assert [arrived.tasks[task].partition for task in arrived.ready()] == [0, 2]
    awaited = derive(definition, calls, [(A, 0), (A, 2)], awaited=[(A, 2)])
    awaited.check_invariants()
    assert [awaited.tasks[task].partition for task in awaited.ready()] == [0]


def test_a_gather_waits_for_chunks_and_takes_those_of_the_scatter_before_it() -> None:
    definition = declared()
    scatter = stage(definition, "scatter", StageKind.SCATTER, reads=(A,), to=S)
    gather = stage(definition, "gather", StageKind.GATHER, writes=(T,), scatter=scatter)
    other = stage(definition, "other", writes=(A,))
    graph = derive(definition, (scatter.id, other.id, gather.id, scatter.id, gather.id), all_slots(definition))
    graph.check_invariants()
    assert graph.sources == {2: 0, 4: 3}
    assert graph.needs[graph.at[2, 0]] == 1 and graph.needs[graph.at[4, 0]] == 2
    with pytest.raises(InvalidProgram, match="scatter scatter is called, and no gather"):
        chunk_sources(definition, (scatter.id,))


def test_the_hash_of_calls_depends_on_their_order_and_on_blocks_before() -> None:
    assert rolled(0, (1, 2)) != rolled(0, (2, 1)) != rolled(1, (2, 1))
    assert rolled(rolled(0, (1,)), (2,)) == 2033251271009481769


def test_a_cache_drops_what_was_not_used_for_longest() -> None:
    cache: Cache[int, int] = Cache(2)
    cache.put(1, 10)
    cache.put(2, 20)
    assert cache.get(1) == 10
    cache.put(3, 30)
    assert (cache.get(2), cache.get(1), cache.get(3), cache.misses, len(cache)) == (None, 10, 30, 1, 2)


@given(st.data())
def test_any_block_runs_each_task_once_in_the_order_of_touches(data: st.DataObject) -> None:
    """Whatever the stages: tasks that touch the same partition run in order, whichever ready task is run first."""
    definition = declared()
    kinds = [
        lambda name: stage(definition, name, reads=(A, W), writes=(B,)),
        lambda name: stage(definition, name, writes=(A,)),
        lambda name: stage(definition, name, reads=(B,), writes=(C,)),
        lambda name: stage(definition, name, reads=(S,), writes=(W,)),
        lambda name: stage(definition, name, reads=(W,), writes=(S, T)),
    ]
    stages = [make(str(number)) for number, make in enumerate(kinds)]
    calls = tuple(stages[pick].id for pick in data.draw(st.lists(st.integers(0, 4), max_size=12)))
    graph = derive(definition, calls, all_slots(definition))
    graph.check_invariants()
    touched: dict[tuple[int, int], list[int]] = {}
    written: list[tuple[str, int]] = []
    needs, ready, ran = graph.needs[:], graph.ready(), 0
    while ready:
        task = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        ran += 1
        call, index = graph.tasks[task].call, graph.tasks[task].partition
        spec = definition.stages[calls[call]]
        for dataset in spec.touches:
            touched.setdefault((dataset, index), []).append(call)
        written += [("read", call)] * bool(spec.copies_read) + [("write", call)] * bool(spec.copies_written)
        for follower in graph.after[task]:
            needs[follower] -= 1
            if not needs[follower]:
                ready.append(follower)
    assert ran == len(graph.tasks)
    assert all(order == sorted(order) for order in touched.values())
    for number, (kind, call) in enumerate(written):
        if kind == "write":
            assert all(other < call for _, other in written[:number])
            assert all(other > call for _, other in written[number + 1 :])


class Ticks:
    """A clock that goes on by 10 at each look."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 10
        return self.now


def line(names: str, ran: list[str], slots: list[int]) -> Run:
    """Tasks that run one after the other."""
    tasks: list[BoundTask] = [
        (ran.append, (name,), slot, (number + 1,) if number + 1 < len(names) else ())
        for number, (name, slot) in enumerate(zip(names, slots, strict=True))
    ]
    return Run(tasks, [0] + [1] * (len(names) - 1), deque([0]))


def test_the_loop_runs_what_becomes_ready_and_counts_time_by_slot() -> None:
    ran: list[str] = []
    run, used = line("abc", ran, [0, 1, 1]), [0, 0]
    assert run_ready(run, (), used, Ticks(), lambda now: 0, 1 << 60) == 1 << 60
    assert ran == ["a", "b", "c"] and used == [10, 20] and run.is_done() and not run.undone()


def test_tasks_of_flagged_slots_are_kept_back() -> None:
    ran: list[str] = []
    run, used = line("abc", ran, [0, 1, 0]), [0, 0]
    run_ready(run, {1}, used, Ticks(), lambda now: 0, 1 << 60)
    assert ran == ["a"] and run.held_back == [1] and run.undone() == {1, 2} and not run.is_done()
    run.queue.extend(run.held_back)
    run.held_back.clear()
    run_ready(run, (), used, Ticks(), lambda now: 0, 1 << 60)
    assert ran == ["a", "b", "c"]


def test_the_loop_polls_at_the_deadline_and_stops_if_it_is_told_to() -> None:
    ran: list[str] = []
    polled: list[int] = []

    def poll(now: int) -> int:
        polled.append(now)
        return now + 15 if len(polled) < 2 else STOP

    run = line("abcde", ran, [0] * 5)
    assert run_ready(run, (), [0], Ticks(), poll, 15) == STOP
    assert polled == [20, 40] and ran == ["a", "b"] and list(run.queue) == [2]


def test_a_task_that_returns_or_raises_ends_the_loop_and_is_named() -> None:
    def returns() -> Any:
        return 5

    run = Run([(returns, (), 0, ())], [0], deque([0]))
    with pytest.raises(StageReturned, match="of type int"):
        run_ready(run, (), [0], Ticks(), lambda now: 0, 1 << 60)
    assert run.failed == 0
