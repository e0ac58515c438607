"""Workers that a controller commands, in a world that delays and reorders: answers are those of `inline`, bitwise."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.dataflow import (
    Dataflow,
    InvalidProgram,
    ProtocolError,
    StageReturned,
    commanded_core,
    commanding_core,
    templates,
)
from frontends.dataflow.blocks import STOP
from frontends.dataflow.commanded_core import CommandedCore
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, CommandingCore, Event, Switches
from frontends.dataflow.commands import (
    NONE,
    SENDS,
    Answer,
    Completed,
    Copies,
    Copy,
    Dispatch,
    Edits,
    Finished,
    Install,
    Instantiate,
    Invoke,
    Placed,
    StorePlaces,
    Submit,
)
from frontends.dataflow.control_messages import CONTROLLER, DRIVER
from frontends.dataflow.messages import Chunk, Marker, Stored, Told
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.submissions import Submissions
from tests.support.dataflow_commanded_world import CommandedWorld, Stuck
from tests.support.dataflow_random import random_program
from tests.support.suites import rest_after

SEEDS = st.integers(0, 1 << 30)
PLANES = {"central": CENTRAL, "templates": ALL_ON, "controller templates alone": Switches(worker_templates=False)}


def played(
    seed: int, switches: Switches = ALL_ON, *, workers: int = 0, repeats: int = 0, times: int = 1, **happens: int
) -> CommandedWorld:
    """A random program in a random world, to its end."""
    df, program = random_program(seed, repeats=repeats)
    world = CommandedWorld(df, workers or Random(seed).randint(1, 4), Random(seed + 1), switches=switches)
    world.run(program, times=times, **happens)
    return world


# ---- random programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("plane", rest_after(1, *PLANES))
@settings(max_examples=15)
@given(SEEDS)
def test_random_programs_equal_inline(plane: str, seed: int) -> None:
    played(seed, PLANES[plane], times=2).check_equal_to_inline()


@pytest.mark.parametrize("plane", PLANES)
@settings(max_examples=15)
@given(SEEDS)
def test_random_programs_with_moves_and_workers_that_come_and_go_equal_inline(plane: str, seed: int) -> None:
    world = played(seed, PLANES[plane], repeats=25, moves=10, swaps=2, joins=2, leaves=2)
    world.check_equal_to_inline()


@pytest.mark.parametrize("off", ["closing", "caching"])
@settings(max_examples=10)
@given(SEEDS)
def test_programs_equal_inline_without_what_only_saves_time(off: str, seed: int) -> None:
    world = played(seed, Switches(**{off: False}), repeats=25, moves=10, swaps=2)
    world.check_equal_to_inline()
    saved = {"closing": Event.BACK_TO_BACK, "caching": Event.PATCH_CACHED}
    assert world.controller.counts[saved[off]] == 0


@settings(max_examples=15)
@given(SEEDS)
def test_programs_equal_inline_while_hardly_anything_is_kept(seed: int) -> None:
    """Templates that the controller has forgotten are submitted again; workers discard theirs."""
    df, program = random_program(seed, repeats=25)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commanding_core, "TEMPLATES_MAX", 2)
        patched.setattr(commanding_core, "PLACEMENTS_MAX", 2)
        patched.setattr(commanding_core, "PATCHES_MAX", 1)
        world = CommandedWorld(df, 3, Random(seed))
        world.run(program, swaps=3, moves=3)
    world.check_equal_to_inline()
    assert all(len(core._installed) <= 2 for core in world.cores.values())


@pytest.mark.parametrize("often", rest_after(1, 5, 20))
def test_each_mechanism_is_used_often(often: int) -> None:
    counts: Counter[Event] = Counter()
    needed = set(Event) - {Event.REPLACED}  # Below.
    for seed in range(120):
        moving = played(seed, workers=4, repeats=30, moves=8, swaps=8)
        staying = played(seed, workers=4, repeats=30)  # Which uses patches again.
        for world in (moving, staying):
            world.check_equal_to_inline()
            counts += world.controller.counts
        if min(counts[event] for event in needed) >= often:
            break
    assert min(counts[event] for event in needed) >= often, counts


def test_edits_drop_add_and_replace_tasks_a_hundred_times_each() -> None:
    """Where a copy is written changes: those that read it wait for another task then, or for one of another worker."""
    df = Dataflow(plane="inline", partitions=12, progress=False)
    X, s = df.partition(np.zeros(12), name="X"), df.single(np.ones(1), name="s")
    w = df.replicate(np.zeros(1), name="w")
    before = df.stage(writes=[X], name="before")(_double)
    write = df.stage(reads=[s], writes=[w], name="write")(_add)
    read = df.stage(reads=[w], writes=[X], name="read")(_add)

    def program() -> Any:
        for _ in range(3):
            before()
        write()
        read()
        df.barrier()

    df.run(df.barrier)
    chance = Random(1)
    world = CommandedWorld(df, 3, chance)
    for _ in range(150):
        world.controller.move((s._spec.id, 0), chance.randrange(3))
        world.controller.move((X._spec.id, chance.randrange(12)), chance.randrange(3))
        world.run(program)
    world.times = 150
    world.check_equal_to_inline()
    counts = world.controller.counts
    kinds = (Event.EDITED, Event.DROPPED, Event.ADDED, Event.REPLACED)
    assert min(counts[kind] for kind in kinds) >= 100, counts


# ---- a mechanism switched off -------------------------------------------------------------------------------


def stale_copy(df: Dataflow) -> Any:
    """A copy is written by one worker, and read by others after the next signal."""
    w, count = df.replicate(np.zeros(1), name="w"), df.single(np.zeros(1), name="count")
    X = df.partition(np.zeros(4), name="X")

    @df.stage(reads=[count], writes=[w])
    def write(count: Any, w: Any) -> None:
        w += 1 + count

    @df.stage(writes=[count])
    def tick(count: Any) -> None:
        count += 1

    @df.stage(reads=[w], writes=[X])
    def read(w: Any, x: Any) -> None:
        x[:] = 10 * x + w

    def program() -> Any:
        for _ in range(3):
            write()
            tick()
            df.barrier()
            read()
            df.barrier()
        return X

    return program


def world_of(make: Any, switches: Switches = ALL_ON, workers: int = 2) -> tuple[CommandedWorld, Any]:
    df = Dataflow(plane="inline", partitions=4, progress=False)
    program = make(df)
    df.run(df.barrier)  # Which declares the barrier.
    return CommandedWorld(df, workers, switches=switches), program


def test_without_validation_a_program_that_reads_a_stale_copy_answers_wrongly() -> None:
    world, program = world_of(stale_copy, Switches(validation=False))
    world.run(program)
    with pytest.raises(AssertionError, match="X"):
        world.check_equal_to_inline()
    world, program = world_of(stale_copy)
    world.run(program)
    world.check_equal_to_inline()
    assert world.controller.counts[Event.PATCHED] == 1 and world.controller.counts[Event.PATCH_CACHED] == 1


def test_without_patches_a_template_that_is_not_valid_is_refused() -> None:
    world, program = world_of(stale_copy, Switches(patching=False))
    with pytest.raises(ProtocolError, match=r"not valid: 0 partitions and 1 copies .* patches are switched off"):
        world.run(program)


def step_alone(df: Dataflow) -> Any:
    X = df.partition(np.arange(8.0), name="X")

    @df.stage(writes=[X])
    def step(x: Any) -> None:
        x *= 3

    def program() -> Any:
        step()
        df.barrier()

    return program


def test_without_edits_a_worker_refuses_a_template_of_which_a_partition_has_moved() -> None:
    for switches in (ALL_ON, Switches(editing=False)):
        world, program = world_of(step_alone, switches)
        world.run(program, times=2)
        world.controller.move((1, 3), 0)
        if switches is ALL_ON:
            world.run(program)
            world.times = 3
            world.check_equal_to_inline()
            assert world.controller.counts[Event.EDITED] == world.controller.counts[Event.ADDED] == 1
        else:
            with pytest.raises(ProtocolError, match=r"worker \d has revision 0 of template 2, and is to execute revi"):
                world.run(program)


def test_a_patch_that_brought_a_partition_to_one_worker_is_not_used_to_bring_it_to_another() -> None:
    df = Dataflow(plane="inline", partitions=4, progress=False)
    X = df.partition(np.arange(8.0), name="X")
    one, other = (df.stage(writes=[X], name=name)(_double) for name in ("one", "other"))
    world = CommandedWorld(df, 3)
    for worker, stage in ((0, one), (0, other), (1, one), (0, other), (2, one)):
        world.controller.move((X._spec.id, 0), worker)
        world.run(stage)
        assert world.controller.holder(X._spec.id, 0) == worker
    assert np.array_equal(world.value(X._spec.id, 0), np.arange(2.0) * 2**5)


# ---- values that are no arrays, parameters, errors ----------------------------------------------------------


class Pair(NamedTuple):
    left: Any
    right: Any


def make_pair(index: int) -> Pair:
    return Pair(np.full(2, index), np.zeros(1))


@pytest.mark.parametrize("plane", PLANES)
def test_objects_and_named_tuples_move_and_stages_work_on_them_where_they_are(plane: str) -> None:
    df = Dataflow(plane="inline", partitions=4, progress=False)
    L, N = df.objects([[index] for index in range(4)], name="L"), df.load(make_pair, partitions=4, name="N")
    X = df.empty(1, like=L, name="X")

    @df.stage(reads=[N], writes=[L])
    def add(pair: Any, objects: Any) -> None:
        objects.append(int(pair.left.sum()) + len(objects))

    @df.stage(reads=[L], writes=[X])
    def see(objects: Any, x: Any) -> None:
        x[0] += sum(objects)

    @df.stage(writes=[N])
    def change(pair: Any) -> None:
        pair.left[:] += 1

    def program() -> Any:
        add()
        see()
        change()
        return L, X

    world = CommandedWorld(df, 2, Random(1), switches=PLANES[plane])
    for index in range(4):
        world.controller.move((L._spec.id, index), (index + 1) % 2)
        world.run(program)
    values, sums = ([world.value(dataset._spec.id, index) for index in range(4)] for dataset in (L, X))
    for _ in range(3):
        df.run(program)
    held, seen = df.run(program)
    assert values == held and np.concatenate(sums).tolist() == seen.tolist()


@pytest.mark.parametrize("plane", PLANES)
def test_parameters_are_those_of_each_call_and_one_that_is_left_out_has_its_default(plane: str) -> None:
    df = Dataflow(plane="inline", partitions=2, progress=False)
    X = df.partition(np.zeros(2), name="X")

    @df.stage(writes=[X])
    def add(x: Any, *, much: float = 1.0, tag: str = "") -> None:
        x += much * 10 + len(tag)

    def program() -> Any:
        for round_number in range(4):
            add(much=float(round_number), tag="ab")
            add()
            add(tag="c" * round_number) if round_number % 2 else add()
            df.barrier()
        return X

    df.run(df.barrier)
    world = CommandedWorld(df, 2, Random(1), switches=PLANES[plane])
    world.run(program)
    world.check_equal_to_inline()
    assert df.run(lambda: X)[0] == 2 * 0 + sum(10 * n + 2 for n in range(4)) + 2 * 40 + 1 + 3


@pytest.mark.parametrize("plane", PLANES)
def test_an_exception_of_a_stage_names_stage_and_partition(plane: str) -> None:
    df = Dataflow(plane="inline", partitions=2, progress=False)
    X, count = df.partition(np.zeros(2), name="X"), df.single(np.zeros(1), name="count")

    @df.stage(reads=[X], writes=[])
    def fails(x: Any, *, late: bool) -> None:
        if late:
            raise ValueError("mine")

    df.stage(writes=[count], name="tick")(lambda count: None)

    def program() -> Any:
        for late in (False, False, True):
            fails(late=late)
            df.barrier()

    df.run(df.barrier)
    with pytest.raises(ValueError, match="mine") as caught:
        CommandedWorld(df, 2, switches=PLANES[plane]).run(program)
    assert caught.value.__notes__[0].startswith("in stage fails, partition ")
    assert caught.value.__notes__[0].endswith("call 4 of the program")


@pytest.mark.parametrize("plane", PLANES)
def test_a_stage_that_returns_a_value_or_reshapes_its_array_is_refused(plane: str) -> None:
    df = Dataflow(plane="inline", partitions=2, progress=False)
    X = df.partition(np.zeros(4), name="X")
    returning = df.stage(reads=[X], name="returning")(lambda x: 3)

    @df.stage(writes=[X])
    def reshaping(x: Any) -> None:
        x.shape = (2, 1)

    with pytest.raises(StageReturned):
        CommandedWorld(df, 2, switches=PLANES[plane]).run(returning)
    with pytest.raises(Exception, match="partition 0 of X was"):
        CommandedWorld(df, 1, switches=PLANES[plane]).run(reshaping)


@pytest.mark.parametrize("plane", ["central", "templates"])
def test_a_scatter_without_its_gather_is_refused_before_anything_is_sent(plane: str) -> None:
    df = Dataflow(plane="inline", partitions=2, progress=False)
    X = df.partition(np.zeros(2))
    send = df.scatter(reads=[X], to=X, name="send")(lambda x: iter(()))
    world = CommandedWorld(df, 2, switches=PLANES[plane])
    with pytest.raises(InvalidProgram, match="scatter send is called, and no gather"):
        world.run(send)
    assert not world.sent


def test_stages_and_datasets_that_are_declared_between_runs_are_taken_in() -> None:
    """Groups that a new stage joins are brought together."""
    df = Dataflow(plane="inline", partitions=4, progress=False)
    X, Y = df.partition(np.arange(8.0), name="X"), df.partition(np.arange(8.0), name="Y")
    one = df.stage(writes=[X], name="one")(_double)
    other = df.stage(writes=[Y], name="other")(_double)

    def first() -> None:
        one()
        other()

    placed = {(X._spec.id, index): index % 2 for index in range(4)}
    placed.update({(Y._spec.id, index): (index + 1) % 2 for index in range(4)})
    world = CommandedWorld(df, 2, placed=placed)
    world.run(first)
    together = df.stage(reads=[X], writes=[Y], name="together")(_add)
    Z = df.partition(np.arange(8.0), name="Z")
    third = df.stage(writes=[Z], name="third")(_double)
    df._freeze()
    for index in range(4):  # As the driver of a worker does when a run begins; neighbours are together at first.
        world.cores[index // 2].hold((Z._spec.id, index), {Z._spec.id: np.arange(2.0) + 2 * index})

    def second() -> None:
        together()
        third()

    world.run(second)
    df.run(first)
    df.run(second)
    for dataset in (X, Y, Z):
        for index, value in enumerate(df._runner.value(dataset._spec.id)):
            assert np.array_equal(world.value(dataset._spec.id, index), value)
    assert {world.controller.holder(Y._spec.id, index) for index in (0, 2)} == {0}


def _double(x: Any) -> None:
    x *= 2


def _add(x: Any, y: Any) -> None:
    y += x


# ---- by hand ------------------------------------------------------------------------------------------------


class Sent:
    """An outbox that keeps what it is given."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, Any]] = []

    def send(self, peer: int, message: Any) -> None:
        self.messages.append((peer, message))

    def report(self, message: Any) -> None:
        self.messages.append((CONTROLLER, message))

    def take(self) -> list[tuple[int, Any]]:
        taken, self.messages = self.messages, []
        return taken


def exchange() -> Dataflow:
    """Datasets X (1) and Y (2) of two partitions, a copy W (3); stages send (0), collect (1), read (2)."""
    df = Dataflow(plane="inline", partitions=2, progress=False)
    X, Y = df.partition(np.arange(2.0), name="X"), df.partition(np.zeros(2), name="Y")
    W = df.replicate(np.zeros(1), name="W")

    @df.scatter(reads=[X], to=Y)
    def send(x: Any) -> Any:
        yield 0, x + 1

    @df.gather(send, writes=[Y])
    def collect(chunks: Any, y: Any) -> None:
        y[:] = sum(chunks, np.zeros(1))

    df.stage(reads=[W], writes=[X], name="read")(_add)
    df._freeze()
    return df


X, Y, W = 1, 2, 3
PLACED = {(0, 0): 0, (X, 0): 0, (X, 1): 1, (Y, 0): 0, (Y, 1): 1}


def worker_of(df: Dataflow, me: int) -> tuple[CommandedCore, Sent]:
    sent = Sent()
    core = CommandedCore(df._definition, me, PartitionMap(PLACED), sent)
    for slot, worker in PLACED.items():
        if worker == me:
            core.hold(slot, {dataset: np.zeros(1) for dataset in df._definition.members(slot[0])})
    core.put_copy(W, np.zeros(1))
    return core, sent


def executes(template: int, revision: int = 0, block: int = 0, **more: Any) -> Instantiate:
    fields = {"patch": NONE, "edits": None, "copies": None, **more}
    return Instantiate(0, block, 0, template, revision, fields["patch"], (), fields["edits"], fields["copies"])


READ = Install(0, 7, 0, (2,), (0,), [(0, ())])
"""Stage read on partition 0."""


def test_a_worker_runs_what_is_installed_each_time_it_is_told_and_says_when_it_is_done() -> None:
    core, sent = worker_of(exchange(), 0)
    core.put_copy(W, np.ones(1))
    core.receive(CONTROLLER, READ)
    for block in range(3):
        core.receive(CONTROLLER, executes(7, block=block))
        core.check_invariants()
        core.step()
        assert sent.take() == [(CONTROLLER, Finished(0, block, None))]
    assert core.store.value((X, 0))[0] == 3 and core.tasks_run == 3
    core._clock = iter(range(100)).__next__
    core.receive(CONTROLLER, executes(7, block=3))
    core.step()
    assert core.take_used_ns() == {(X, 0): 1} and core.take_used_ns() == {}


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (executes(8), "worker 0 has no template 8"),
        (executes(7, 1), "has revision 0 of template 7, and is to execute revision 1"),
        (executes(7, patch=3), "worker 0 has no patch 3"),
        (executes(7, 1, edits=Edits([5], [], [])), "task 5 is to be dropped and is not there"),
        (executes(7, 1, edits=Edits([], [(0, ())], [])), "task 0 is to be added and is there"),
        (executes(7, 1, edits=Edits([], [], [(5, ())])), "task 5 is to be replaced and is not there"),
        (Told(0, 0, 0, 0, 0, True, 0, ()), "worker 0 got a Told from -1"),
    ],
)
def test_orders_that_cannot_be_carried_out_are_refused(order: Any, error: str) -> None:
    core, _ = worker_of(exchange(), 0)
    core.receive(CONTROLLER, READ)
    with pytest.raises(ProtocolError, match=error):
        core.receive(CONTROLLER, order)


def test_a_block_that_begins_before_the_last_is_over_is_refused() -> None:
    core, _ = worker_of(exchange(), 0)
    core.receive(CONTROLLER, READ)
    core.receive(CONTROLLER, executes(7))
    with pytest.raises(ProtocolError, match="block 1 is to begin before 0 is over"):
        core.receive(CONTROLLER, executes(7, block=1))
    with pytest.raises(ProtocolError, match="block 1 is to begin before 0 is over"):
        core.receive(CONTROLLER, Dispatch(0, 1, 0, [(0, 0, 2, 0, -1)], ()))


def test_more_templates_than_are_allowed_are_refused_and_discarded_ones_make_room() -> None:
    core, _ = worker_of(exchange(), 0)
    for number in range(templates.PLACEMENTS_MAX):
        core.receive(CONTROLLER, Install(0, number, 0, (2,), (0,), [(0, ())]))
    with pytest.raises(ProtocolError, match=f"more than {templates.PLACEMENTS_MAX} templates"):
        core.receive(CONTROLLER, Install(0, 9_999, 0, (2,), (0,), [(0, ())]))


def test_a_patch_sends_a_partition_away_and_the_template_waits_for_what_it_brings() -> None:
    """A partition is no longer at the worker that sent it; a copy stays."""
    old, from_old = worker_of(exchange(), 0)
    new, from_new = worker_of(exchange(), 1)
    old.receive(CONTROLLER, executes(NONE, NONE, patch=4, copies=Copies([(X, 0, 1), (W, 0, 1)], [])))
    old.step()
    (_, first), (_, second), finished = from_old.take()
    assert isinstance(first, Copy) and isinstance(second, Copy) and finished == (CONTROLLER, Finished(0, 0, None))
    assert (X, 0) not in old.held and (X, 0) not in old.store and (W, 0) in old.store
    new.receive(CONTROLLER, READ)
    new.receive(0, first)  # Before the order.
    new.receive(CONTROLLER, executes(7, patch=4, copies=Copies([], [(X, 0), (W, 0)])))
    new.step()
    assert from_new.take() == [], "the copy is not here"
    new.receive(0, second)
    new.step()
    assert from_new.take() == [(CONTROLLER, Finished(0, 0, None))] and (X, 0) in new.held
    for core in (old, new):
        core.check_invariants()


def test_chunks_and_markers_that_come_before_the_block_begins_here_are_kept() -> None:
    core, sent = worker_of(exchange(), 1)
    core.receive(0, Chunk(0, 5, 0, 0, 0, 0, Y, 1, 0, 0, [np.ones(1)]))
    core.receive(0, Marker(0, 5, 0, 0, 0, (1,), Y, 1, 0, 0))
    core.receive(CONTROLLER, Install(0, 1, 0, (0, 1), (0, 2), [(3, ())]))
    core.receive(CONTROLLER, executes(1, block=5))
    core.step()
    assert sent.take() == [(CONTROLLER, Finished(0, 5, None))] and core.store.value((Y, 1))[0] == 1


def test_a_worker_reports_single_tasks_that_are_done_while_others_wait() -> None:
    core, sent = worker_of(exchange(), 0)
    core.receive(CONTROLLER, Dispatch(0, 0, 0, [(4, 1, 1, 0, 0), (2, 0, 0, 0, -1), (9, SENDS, W, 1, 11)], ()))
    core.step()
    made = sent.take()
    assert (CONTROLLER, Completed(0, 0, [9, 2], None)) in made
    assert (1, Copy(0, 0, 11, W, 0, np.zeros(1))) in made
    core.check_invariants()
    core.receive(1, Chunk(0, 0, 0, 0, 0, 1, Y, 0, 0, 0, [np.ones(1)]))
    core.step()
    assert sent.take() == [(CONTROLLER, Completed(0, 0, [4], None))]


def test_single_tasks_that_come_while_others_run_are_run_and_reported_at_the_next_poll() -> None:
    """`poll` is where a driver takes in messages."""
    df = exchange()
    core, sent = worker_of(df, 0)
    more = [Dispatch(0, 0, 0, [(number, 0, 2, 0, -1)], ()) for number in (1, 2)]

    def poll(now: int) -> int:
        if more:
            core.receive(CONTROLLER, more.pop(0))
        return now

    core._clock, core._poll = iter(range(100)).__next__, poll
    core.receive(CONTROLLER, Dispatch(0, 0, 0, [(0, 0, 2, 0, -1)], ()))
    core.step()
    assert [message.numbers for _, message in sent.take()] == [[0], [1], [2]]
    core._poll = lambda now: STOP
    core.receive(CONTROLLER, Dispatch(0, 0, 0, [(3, 0, 2, 0, -1), (4, 0, 2, 0, -1)], ()))
    core.step()
    assert [message.numbers for _, message in sent.take()] == [[3]]


def test_values_that_nobody_takes_are_refused_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commanded_core, "ARRIVED_MAX", 2)
    core, _ = worker_of(exchange(), 0)
    for tag in (1, 2):
        core.receive(1, Copy(0, 4, tag, W, 0, np.ones(1)))
    with pytest.raises(ProtocolError, match="more than 2 values wait at worker 0"):
        core.receive(1, Copy(0, 4, 3, W, 0, np.ones(1)))


def test_single_tasks_are_bound_again_when_too_many_were(monkeypatch: pytest.MonkeyPatch) -> None:
    def bound(seed: int) -> int:
        world = played(seed, CENTRAL, workers=2, repeats=10)
        world.check_equal_to_inline()
        return sum(len(core._singles) for core in world.cores.values())

    kept = bound(3)
    monkeypatch.setattr(commanded_core, "SINGLES_MAX", 1)
    assert 0 < bound(3) < kept


def test_messages_of_an_epoch_that_is_over_are_dropped_and_those_of_the_next_kept() -> None:
    core, sent = worker_of(exchange(), 0)
    core.epoch = 5
    core.receive(CONTROLLER, executes(8))
    assert core.early == [] and core.block == -1
    core.epoch = -1
    core.receive(CONTROLLER, executes(8))
    assert len(core.early) == 1 and core.block == -1 and sent.take() == []


def test_a_worker_stores_what_it_has_as_it_is() -> None:
    core, sent = worker_of(exchange(), 0)
    core.receive(CONTROLLER, StorePlaces(0, 3, (W,)))
    ((_, stored),) = sent.take()
    assert isinstance(stored, Stored) and stored.block == 3
    assert set(stored.values) == {(0, 0), (X, 0), (Y, 0), (W, 0)}
    assert stored.values[X, 0] is not core.store.value((X, 0))


def controller_of(df: Dataflow, **more: Any) -> tuple[CommandingCore, Sent]:
    sent = Sent()
    return CommandingCore(df._definition, (0, 1), PartitionMap(PLACED), sent, **more), sent


def test_the_controller_refuses_what_it_did_not_ask_for() -> None:
    core, sent = controller_of(exchange())
    for message, error in (
        (Finished(0, 3, None), "worker 1 finished block 3, which it was not ordered"),
        (Completed(0, 3, [0], None), "tasks of block 3 are done, which was not dispatched"),
        (Placed(0, []), "the controller got a Placed from 1"),
    ):
        with pytest.raises(ProtocolError, match=error):
            core.receive(1, message)
    core.receive(DRIVER, Submit(0, 0, 0, [(0, 2, 0), (0, 2, 1)], (), ends=True))
    core.step()
    assert [peer for peer, _ in sent.take()] == [0, 1]
    core.check_invariants()
    for again, error in (
        (Submit(0, 1, 0, [], (), ends=True), "block 1 is submitted while block 0 runs"),
        (Invoke(0, 1, 0, 1, ()), "block 1 is invoked while block 0 runs"),
    ):
        with pytest.raises(ProtocolError, match=error):
            core.receive(DRIVER, again)
    core.receive(0, Completed(0, 0, [0], None))
    with pytest.raises(ProtocolError, match="task 0 of the block is done twice"):
        core.receive(0, Completed(0, 0, [0], None))
    core.receive(0, Completed(-1, 0, [0], None))  # Of another epoch.
    core.receive(1, Completed(0, 0, [1], True))
    assert sent.take() == [(DRIVER, Answer(0, 0, True, 1))]
    core.receive(DRIVER, Invoke(0, 1, 0, 99, ()))
    ((_, unknown),) = sent.take()
    assert unknown.template == 99


def test_the_controller_refuses_moves_to_workers_that_are_none_or_leave_and_the_last_one_does_not_leave() -> None:
    core, _ = controller_of(exchange())
    with pytest.raises(ProtocolError, match="to move to worker 7"):
        core.move((X, 0), 7)
    with pytest.raises(ProtocolError, match="worker 1 joins, and is one"):
        core.join(1)
    core.leave(1)
    with pytest.raises(ProtocolError, match="to move to worker 1"):
        core.move((X, 0), 1)
    with pytest.raises(ProtocolError, match="worker 0 is to leave, and is the last one"):
        core.leave(0)


def test_uneven_load_moves_a_partition_when_it_was_seen_twice() -> None:
    world, program = world_of(step_alone)
    world.run(program)
    used = {(1, 0): 4.0, (1, 1): 4.0, (1, 2): 1.0, (1, 3): 1.0}
    world.balance(used)
    world.run(program)
    assert world.controller.moves == 0
    world.balance(used)
    world.run(program)
    assert world.controller.moves == 1 and world.controller.holder(1, 0) != world.controller.holder(1, 1)
    world.times = 3
    world.check_equal_to_inline()


def test_answers_of_blocks_that_were_not_asked_for_are_refused() -> None:
    submissions = Submissions(exchange()._definition, lambda message: None, is_templated=True)
    assert submissions.receive(Answer(3, 0, True, 1)) is None
    with pytest.raises(ProtocolError, match="answers block 0, which was not asked for"):
        submissions.receive(Answer(0, 0, True, 1))


def test_a_world_in_which_a_message_is_lost_is_stuck() -> None:
    world, program = world_of(step_alone)
    world.run(program)
    send = world.send
    world.send = lambda sender, peer, message: None if peer == 1 else send(sender, peer, message)  # type: ignore[method-assign]
    with pytest.raises(Stuck):
        world.run(program)
