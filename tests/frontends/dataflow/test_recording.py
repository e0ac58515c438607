"""What a worker records of its tasks: the tasks run as without, all are counted, and memory is bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from frontends.dataflow.blocks import STOP, BoundTask, Graph, Run, Task
from frontends.dataflow.commanding_core import ALL_ON
from frontends.dataflow.errors import StageReturned
from frontends.dataflow.inline import InlineRunner
from frontends.dataflow.recording import SEVERAL, SPAN, SPELL_NS_MIN, WORKER_ROW, Recorder
from frontends.dataflow.stages import DatasetKind
from tests.support.dataflow_led_world import LedWorld
from tests.support.dataflow_random import random_program
from tests.support.dataflow_world import World
from tests.support.suites import rest_after

SEEDS = range(10)
RATES = [1, 4, 20, 10_000]
"""Spans a second: from next to none to all."""
Array = np.ndarray[Any, Any]


class Clock:
    """It goes on by a millisecond or so at each look."""

    def __init__(self, step_ns: int = 1_000_003) -> None:
        self.now, self.step_ns = 0, step_ns

    def __call__(self) -> int:
        self.now += self.step_ns
        return self.now


class Kept:
    """A recorder, and what it has delivered."""

    def __init__(self, spans_per_s: int) -> None:
        self.deliveries: list[Array] = []
        self.recorder = Recorder(spans_per_s, self.deliveries.append)

    def spans(self) -> Array:
        self.recorder.flush()
        return np.concatenate([np.zeros(0, SPAN), *self.deliveries])

    def blocks(self) -> Array:
        """Those of the worker's own row."""
        spans = self.spans()
        found: Array = spans[spans["group"] == WORKER_ROW]
        return found

    def tasks(self) -> Array:
        spans = self.spans()
        found: Array = spans[spans["tasks"] * (spans["group"] != WORKER_ROW) > 0]
        return found


def chain(count: int, ran: list[int], slots: int = 2) -> tuple[Graph, Run]:
    """Tasks of as many calls, one after the other, on partitions in turn."""
    graph = Graph(
        tuple(range(count)), tuple((7, index) for index in range(slots)), {},
        [Task(call, call % slots, call % slots) for call in range(count)],
    )  # fmt: skip
    tasks: list[BoundTask] = [
        (ran.append, (call,), call % slots, (call + 1,) if call + 1 < count else ()) for call in range(count)
    ]
    return graph, Run(tasks, [0] + [1] * (count - 1), deque([0]))


def run_all(kept: Kept, block: int, graph: Graph, run: Run, clock: Callable[[], int], used: list[int]) -> int:
    return kept.recorder.run_ready(block, graph, run, (), used, clock, lambda now: 1 << 62, 1 << 62)


# ---- the same as without ------------------------------------------------------------------------------


@pytest.mark.parametrize("spans_per_s", RATES)
@pytest.mark.parametrize("seed", rest_after(1, *SEEDS))
def test_a_program_that_is_recorded_answers_as_without_and_each_task_is_counted(seed: int, spans_per_s: int) -> None:
    answers = []
    kept = Kept(spans_per_s)
    for recorder in (None, kept.recorder):
        df, program = random_program(seed)
        assert isinstance(df._runner, InlineRunner)
        df._runner.recorder = recorder
        df.run(program)
        values = [
            df._runner.value(spec.id) for spec in df._definition.datasets if spec.kind is not DatasetKind.REPLICATED
        ]
        answers.append(values)
    for mine, other in zip(*answers, strict=True):
        assert all(np.array_equal(one, two) for one, two in zip(mine, other, strict=True))
    assert kept.blocks()["tasks"].sum() == df._runner.tasks_run
    if spans_per_s == 10_000:
        assert kept.tasks()["tasks"].sum() == df._runner.tasks_run


@pytest.mark.parametrize("spans_per_s", RATES)
@pytest.mark.parametrize("seed", rest_after(1, *SEEDS))
def test_workers_that_record_agree_through_moves_joins_and_losses(seed: int, spans_per_s: int) -> None:
    df, program = random_program(seed)
    kept: dict[int, Kept] = {}

    def recorder(worker: int) -> Recorder:
        return kept.setdefault(worker, Kept(spans_per_s)).recorder

    world = World(df, program, 3, Random(seed), recorder=recorder, clock=Clock())
    world.run(moves=20, joins=2, snapshots=3, crashes=1)
    world.check_equal_to_inline()
    for one in kept.values():
        spans = one.spans()
        assert (spans["end_ns"] >= spans["begin_ns"]).all() and (spans["last"] >= spans["first"]).all()
        assert (spans["busy_ns"] <= spans["end_ns"] - spans["begin_ns"]).all()
        noted = np.sort(one.tasks(), order="begin_ns")
        assert (noted["begin_ns"][1:] >= noted["end_ns"][:-1]).all(), "a worker runs one task at a time"


@pytest.mark.parametrize("spans_per_s", RATES)
@pytest.mark.parametrize("seed", rest_after(1, *range(4)))
def test_workers_that_are_commanded_record_blocks_that_are_templates(seed: int, spans_per_s: int) -> None:
    """Those that run for the first time are sent task by task, and are not recorded."""
    df, program = random_program(seed, repeats=5)
    kept: dict[int, Kept] = {}

    def recorder(worker: int) -> Recorder:
        return kept.setdefault(worker, Kept(spans_per_s)).recorder

    world = LedWorld(df, program, 3, Random(seed), switches=ALL_ON, recorder=recorder, clock=Clock())
    world.run(moves=10, joins=1, snapshots=2, crashes=1)
    world.check_equal_to_inline()
    noted = 0
    for one in kept.values():
        spans = one.spans()
        assert (spans["end_ns"] >= spans["begin_ns"]).all()
        assert (spans["busy_ns"] <= spans["end_ns"] - spans["begin_ns"]).all()
        noted += len(spans)
    assert noted > 0


@pytest.mark.parametrize("spans_per_s", RATES)
@pytest.mark.parametrize("seed", rest_after(1, *SEEDS))
def test_tasks_of_partitions_that_move_are_counted_once(seed: int, spans_per_s: int) -> None:
    df, program = random_program(seed)
    kept: list[Kept] = []

    def recorder(worker: int) -> Recorder:
        kept.append(Kept(spans_per_s))
        return kept[-1].recorder

    world = World(df, program, 3, Random(seed), recorder=recorder, clock=Clock())
    world.run(moves=30)
    ran = sum(core.tasks_run for core in world.cores.values())
    assert sum(int(one.blocks()["tasks"].sum()) for one in kept) == ran


# ---- tasks one by one ---------------------------------------------------------------------------------


def test_each_task_has_its_stage_partition_block_and_time() -> None:
    ran: list[int] = []
    graph, run = chain(3, ran)
    kept, used = Kept(10_000), [0, 0, 0]
    run_all(kept, 5, graph, run, Clock(10), used)
    assert ran == [0, 1, 2] and run.is_done()
    assert kept.tasks().tolist() == [
        (7, 0, 0, 5, 5, 20, 30, 1, 10), (7, 1, 1, 5, 5, 30, 40, 1, 10), (7, 0, 2, 5, 5, 40, 50, 1, 10),
    ]  # fmt: skip
    assert kept.blocks().tolist() == [(WORKER_ROW, 0, 2, 5, 5, 20, 50, 3, 30)]
    assert used == [20, 10, 0]


@pytest.mark.parametrize("spans_per_s", [1, 10_000])
def test_flags_polls_and_errors_are_as_without(spans_per_s: int) -> None:
    ran: list[int] = []
    graph, run = chain(4, ran)
    recorder = Kept(spans_per_s).recorder
    clock = Clock(10)
    if spans_per_s == 1:
        warm = chain(1, [])
        recorder.run_ready(0, *warm, (), [0, 0, 0], clock, lambda now: 1 << 62, 1 << 62)  # There is no room now.
    polls: list[int] = []

    def poll(now: int) -> int:
        polls.append(now)
        return STOP

    assert recorder.run_ready(1, graph, run, {1}, [0, 0, 0], clock, poll, 1 << 62) == 1 << 62
    assert ran == [0] and run.held_back == [1] and not polls
    run.queue.extend(run.held_back)
    assert recorder.run_ready(1, graph, run, (), [0, 0, 0], clock, poll, 0) == STOP
    assert ran == [0, 1] and list(run.queue) == [2] and len(polls) == 1

    def fails() -> None:
        raise KeyError("mine")

    run.tasks[2] = (fails, (), 0, ())
    with pytest.raises(KeyError, match="mine"):
        recorder.run_ready(1, graph, run, (), [0, 0, 0], clock, poll, 1 << 62)
    assert run.failed == 2
    run.queue.append(3)
    run.tasks[3] = (lambda: 5, (), 0, ())
    with pytest.raises(StageReturned, match="of type int"):
        recorder.run_ready(1, graph, run, (), [0, 0, 0], clock, poll, 1 << 62)
    assert run.failed == 3


class GivesWay:
    """A chain of four tasks that gives way after three."""

    def __init__(self) -> None:
        self.tasks = [0, 1, 2, 3]

    def left(self) -> Sequence[int]:
        return self.tasks

    def __call__(self) -> bool | None:
        self.tasks = self.tasks[3:]
        return True if self.tasks else None


@pytest.mark.parametrize(("stages", "shown"), [((4, 4, 4, 4), 4), ((4, 4, 5, 4), SEVERAL)])
def test_a_chain_counts_as_the_tasks_that_it_ran_and_has_a_stage_if_all_have_the_same(
    stages: tuple[int, ...], shown: int
) -> None:
    one = GivesWay()
    graph = Graph(stages, ((7, 0),), {}, [Task(call, 0, 0) for call in range(4)])
    run = Run([(one, (), 0, ())] * 4, [0] * 4, deque([0]), chains={0: one})
    kept = Kept(10_000)
    run_all(kept, 0, graph, run, Clock(10), [0, 0])
    assert [(span["tasks"], span["stage"]) for span in kept.tasks()] == [(3, shown), (1, shown)]
    assert run.is_done() and kept.blocks()["tasks"].sum() == 4


# ---- spells -------------------------------------------------------------------------------------------


def test_beyond_the_room_spells_say_which_blocks_and_how_long_each_partition_took() -> None:
    kept, clock, used = Kept(4), Clock(10_000), [0, 0, 0]
    for block in range(50):
        graph, run = chain(4, [])
        run_all(kept, block, graph, run, clock, used)
    assert len(kept.tasks()) < 4
    spells = kept.blocks()[1:]
    assert (spells["last"] > spells["first"]).any() and kept.blocks()["tasks"].sum() == 200
    spans = kept.spans()
    of_partitions = spans[(spans["group"] == 7) & (spans["tasks"] == 0)]
    noted = kept.tasks()
    for index in (0, 1):
        mine = of_partitions[of_partitions["index"] == index]["busy_ns"].sum()
        assert mine + noted[noted["index"] == index]["busy_ns"].sum() == used[index]
    assert set(of_partitions["stage"]) == {SEVERAL}


def test_a_long_block_is_cut_into_spells() -> None:
    kept, used = Kept(200), [0] * 3
    graph, run = chain(5_000, [])
    run_all(kept, 0, graph, run, Clock(20_000), used)
    spells = kept.blocks()[1:]
    assert run.is_done() and len(spells) >= 3 and kept.blocks()["tasks"].sum() == 5_000
    # A spell of three rows, at 200 spans a second of which half are tasks, is 4 × 10 ms long.
    assert (spells["end_ns"] - spells["begin_ns"]).max() < 40_000_000 + SPELL_NS_MIN


def test_what_a_report_has_cleared_is_not_lost() -> None:
    """A core clears the list of times when it reports them, and says so before."""
    kept, clock, used = Kept(1), Clock(1_000), [0, 0, 0]
    for block in range(20):
        graph, run = chain(4, [])
        run_all(kept, block, graph, run, clock, used)
        kept.recorder.pause()
        used[:] = [0, 0, 0]
    spans = kept.spans()
    assert spans[spans["group"] == 7]["busy_ns"].sum() == 20 * 4 * 1_000


@pytest.mark.parametrize("step_ns", [100, 100_000, 100_000_000])
def test_spans_are_bounded_whatever_tasks_take(step_ns: int) -> None:
    spans_per_s = 100
    kept, clock, used = Kept(spans_per_s), Clock(step_ns), [0, 0, 0]
    for block in range(40):
        graph, run = chain(100, [])
        run_all(kept, block, graph, run, clock, used)
    seconds = clock.now / 1e9 + 1
    assert len(kept.spans()) <= 1.5 * spans_per_s * seconds + 40
    assert kept.blocks()["tasks"].sum() == 4_000
    for spans in kept.deliveries[:-1]:
        assert len(spans) <= spans_per_s + 3
