"""Which tasks are called as one, and that the rest of a block goes on around them."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.dataflow import Dataflow
from frontends.dataflow.blocks import Graph, Run, derive, run_ready
from frontends.dataflow.calls import Block, Calls
from frontends.dataflow.chains import Chained, chained
from tests.support.dataflow_random import random_program

NEVER = 1 << 62


def blocks_of(df: Dataflow, program: Any) -> list[Block]:
    """The blocks of a program whose signals all say no."""
    blocks: list[Block] = []

    def keep(block: Block) -> bool:
        blocks.append(block)
        return False

    df._freeze()
    df._called(program, Calls(keep))
    return blocks


def graph_of(df: Dataflow, stages: tuple[int, ...]) -> Graph:
    counts = df._definition.group_partitions()
    slots = [(group, index) for group, partitions in counts.items() for index in range(partitions)]
    return derive(df._definition, stages, slots)


class _Programs:
    """Two datasets of one group, a copy and a single one, and stages on them."""

    def __init__(self) -> None:
        df = self.df = Dataflow(partitions=2, progress=False)
        X, Y = df.partition((np.zeros(4), np.zeros(4)), name="x")
        w, s = df.replicate(np.zeros(1)), df.single(np.zeros(1))
        self.x = df.stage(writes=[X], name="x")(lambda x: None)
        self.y = df.stage(writes=[Y], name="y")(lambda y: None)
        self.both = df.stage(reads=[X], writes=[Y], name="both")(lambda x, y: None)
        self.reads_copy = df.stage(reads=[w], writes=[X], name="reads-copy")(lambda w, x: None)
        self.writes_copy = df.stage(reads=[s], writes=[w], name="writes-copy")(lambda s, w: None)
        self.plain = df.stage(writes=[X], name="plain")(lambda x: None)

    def chains(self, *calls: Any) -> list[list[str]]:
        """Those of partition 0, as stages and positions, if all stages but plain are compiled."""
        (block,) = blocks_of(self.df, lambda: [call() for call in calls])
        graph = graph_of(self.df, block.stages)
        stages = self.df._definition.stages
        fit = [
            number for number, task in enumerate(graph.tasks) if stages[graph.stages[task.call]].name != "plain"
        ]  # fmt: skip
        made = chained(graph, fit).chains.values()
        first = [tasks for tasks in made if graph.tasks[tasks[0]].partition == 0]
        return [[f"{stages[graph.stages[graph.tasks[task].call]].name}@{graph.tasks[task].call}" for task in tasks]
                for tasks in first]  # fmt: skip


def test_tasks_of_a_partition_in_a_row_are_one_chain() -> None:
    p = _Programs()
    assert p.chains(p.x, p.both, p.x, p.y) == [["x@0", "both@1", "x@2", "y@3"]]


def test_a_plain_task_on_the_partition_ends_a_chain() -> None:
    p = _Programs()
    assert p.chains(p.x, p.x, p.plain, p.y, p.x) == [["x@0", "x@1"], ["y@3"], ["x@4"]]


def test_a_task_that_waits_for_another_partition_starts_a_chain() -> None:
    p = _Programs()
    chains = p.chains(p.x, p.reads_copy, p.writes_copy, p.reads_copy, p.x)
    assert chains == [["x@0", "reads-copy@1"], ["writes-copy@2"], ["reads-copy@3", "x@4"]]


class _Numbered:
    """A chain that runs its tasks one a call, or all at once."""

    def __init__(self, tasks: list[int], ran: list[int], at_once: int) -> None:
        self.tasks, self.ran, self.at_once, self.position = tasks, ran, at_once, 0

    def __call__(self) -> object:
        for task in self.tasks[self.position :][: self.at_once]:
            self.ran.append(task)
            self.position += 1
        if self.position < len(self.tasks):
            return self
        self.position = 0
        return None

    def left(self) -> list[int]:
        return self.tasks[self.position :]


def _run_of(graph: Graph, made: Chained, ran: list[int], at_once: int) -> Run:
    """A run that writes down which tasks ran."""
    chains = {first: _Numbered(tasks, ran, at_once) for first, tasks in made.chains.items()}
    tasks: list[Any] = [
        (chains.get(number, lambda number=number: ran.append(number)), (), task.slot, made.after[number])
        for number, task in enumerate(graph.tasks)
    ]
    return Run(tasks, made.needs[:], deque(made.ready), chains=chains)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 1), at_once=st.integers(1, 4))
def test_chains_of_any_tasks_run_all_in_an_order_that_the_graph_allows(seed: int, share: float, at_once: int) -> None:
    df, program = random_program(seed)
    chance = Random(seed)
    for block in blocks_of(df, program):
        graph = graph_of(df, block.stages)
        computes = {
            number
            for number, task in enumerate(graph.tasks)
            if df._definition.stages[graph.stages[task.call]].kind == "stage"
        }
        made = chained(graph, {number for number in sorted(computes) if chance.random() < share})
        for tasks in made.chains.values():
            assert len({graph.tasks[task].slot for task in tasks}) == 1 and tasks == sorted(tasks)
        ran: list[int] = []
        run = _run_of(graph, made, ran, at_once)
        for gather in graph.sources:  # Chunks are there from the start: which tasks wait for them is not looked at.
            for (call, _), task in graph.at.items():
                if call == gather:
                    run.release(task)
        while not run.is_done():
            assert run.undone() == set(range(len(graph.tasks))) - set(ran)
            run_ready(run, (), [0] * (len(graph.slots) + 1), lambda: 1, lambda now: -1, 0)
        assert sorted(ran) == list(range(len(graph.tasks))) and not run.undone()
        place = {task: position for position, task in enumerate(ran)}
        for task, after in enumerate(graph.after):
            assert all(place[task] < place[follower] for follower in after)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_flag_keeps_back_the_rest_of_a_chain(at_once: int) -> None:
    p = _Programs()
    (block,) = blocks_of(p.df, lambda: [p.x() for _ in range(3)])
    graph = graph_of(p.df, block.stages)
    ran: list[int] = []
    run = _run_of(graph, chained(graph, range(len(graph.tasks))), ran, at_once)
    flagged: set[int] = set()
    used = [0] * (len(graph.slots) + 1)
    clock = iter(range(1000))

    def flag_after_the_first(now: int) -> int:
        flagged.add(graph.tasks[0].slot)
        return NEVER

    run_ready(run, flagged, used, lambda: next(clock), flag_after_the_first, -1)
    mine = [number for number, task in enumerate(graph.tasks) if task.partition == 0]
    assert [task for task in ran if task in mine] == mine[:at_once]
    assert run.undone() == set(mine[at_once:]) and run.held_back == [mine[0]]
    other = graph.tasks[1].slot
    assert used[graph.tasks[0].slot] == 1  # One call of the chain, by this clock.
    assert used[other] == -(-3 // at_once)
