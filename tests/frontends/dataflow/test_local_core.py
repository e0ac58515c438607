"""Workers that spawn their tasks themselves, in a world that delays and reorders: answers are those of `inline`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.dataflow import Dataflow, ProgramDiverged, ProtocolError
from frontends.dataflow.local_core import LocalCore
from frontends.dataflow.messages import Chunk, Give, MapUpdate, Marker, Message, Move, Partition
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.routing import HOPS_MAX, RULES, Action, Case, Newer, Presence, newer
from tests.support.dataflow_random import random_program
from tests.support.dataflow_world import Stuck, World
from tests.support.suites import rest_after

SEEDS = st.integers(0, 1 << 30)


def played(seed: int, workers: int | None = None, rules: Mapping[Case, Action] = RULES, **happens: int) -> World:
    """A random program in a random world, to its end."""
    df, program = random_program(seed)
    world = World(df, program, workers or Random(seed).randint(1, 4), Random(seed + 1), rules=rules)
    world.run(**happens)
    return world


@settings(max_examples=20)
@given(SEEDS)
def test_random_programs_equal_inline(seed: int) -> None:
    played(seed).check_equal_to_inline()


@settings(max_examples=20)
@given(SEEDS)
def test_random_programs_with_moves_and_joins_equal_inline(seed: int) -> None:
    world = played(seed, moves=40, joins=2)
    world.check_equal_to_inline()


@settings(max_examples=20)
@given(SEEDS)
def test_random_programs_with_lost_workers_go_back_to_a_snapshot_and_equal_inline(seed: int) -> None:
    """A snapshot is checked to be a consistent cut whenever one is gone back to."""
    played(seed, moves=20, joins=2, snapshots=5, crashes=3).check_equal_to_inline()


@pytest.mark.parametrize("often", rest_after(1, 20, 100))
def test_each_rule_is_used_often_and_no_message_is_refused(often: int) -> None:
    """Nor has anybody to wait for a partition that was overtaken on its link, by as many other messages."""
    counts: Counter[Action] = Counter()
    moves = epochs = overtaken = 0
    for seed in range(80):
        world = played(seed, workers=4, moves=120)
        world.check_equal_to_inline()
        counts += world.counts
        moves += world.moves
        overtaken += world.overtaken
        epochs += world.placed[max(world.placed)].version
        if min(counts[action] for action in (Action.HOLD, Action.FORWARD, Action.RETURN)) >= often:
            break
    assert counts[Action.ERROR] == 0 and moves > 10 * often and epochs > often and overtaken > often
    assert min(counts[action] for action in set(Action) - {Action.ERROR}) >= often, counts


SWITCHED_OFF: dict[str, dict[Case, Action]] = {
    "forwarding": {(Presence.AWAY, Newer.MINE): Action.HOLD},
    "holding": {case: Action.ERROR for case, action in RULES.items() if action is Action.HOLD},
    "returning": {(Presence.LATER, each): Action.HOLD for each in Newer},
    "map versions, so that all is held": {(Presence.AWAY, each): Action.HOLD for each in Newer},
    "map versions, so that all is refused": {(Presence.AWAY, each): Action.ERROR for each in Newer},
}


@pytest.mark.parametrize("switched_off", rest_after(2, *SWITCHED_OFF))
def test_without_a_rule_a_program_that_ends_with_it_does_not_end_or_is_refused(switched_off: str) -> None:
    rules = {**RULES, **SWITCHED_OFF[switched_off]}
    for seed in range(40):
        try:
            played(seed, workers=4, moves=60, rules=rules)
        except (Stuck, ProtocolError):
            played(seed, workers=4, moves=60).check_equal_to_inline()
            return
    raise AssertionError("no program needs the rule")


def test_the_table_says_something_of_every_case_and_refuses_one() -> None:
    assert RULES.keys() == {(presence, each) for presence in Presence for each in Newer}
    assert [case for case, action in RULES.items() if action is Action.ERROR] == [(Presence.AWAY, Newer.NEITHER)]
    assert [newer(2, 1), newer(1, 1), newer(1, 2)] == [Newer.SENDERS, Newer.NEITHER, Newer.MINE]


# ---- by hand --------------------------------------------------------------------------------------


class Sent:
    """An outbox that keeps what it is given."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, Message]] = []
        self.reports: list[Message] = []

    def send(self, worker: int, message: Message) -> None:
        self.messages.append((worker, message))

    def flush(self) -> None:
        """Nothing waits."""

    def report(self, message: Message) -> None:
        self.reports.append(message)

    def take(self) -> list[tuple[int, Message]]:
        taken, self.messages = self.messages, []
        return taken


def exchange() -> tuple[Dataflow, Any]:
    """A scatter from two partitions to two others, and a gather."""
    df = Dataflow(plane="inline", partitions=2, progress=False)
    X, Y = df.partition(np.arange(2.0), name="X"), df.partition(np.zeros(2), name="Y")

    @df.scatter(reads=[X], to=Y)
    def send(x: Any) -> Any:
        yield 0, x + 1

    @df.gather(send, writes=[Y])
    def collect(chunks: Any, y: Any) -> None:
        y[:] = sum(chunks, np.zeros(1))

    def program() -> Any:
        send()
        collect()
        return Y

    df.run(program)
    return df, program


X, Y = 1, 2


def core_of(df: Dataflow, me: int, placed: dict[tuple[int, int], int], versions: int = 1) -> tuple[LocalCore, Sent]:
    made, sent = PartitionMap({(0, 0): 0, **placed}), Sent()
    for _ in range(versions - 1):
        for slot, worker in placed.items():
            made.move(slot, worker)
    core = LocalCore(df._definition, me, (0, 1, 2), made, sent)
    for slot in made.held_by(me):
        core.hold(slot, {dataset: np.zeros(1) for dataset in core.members(slot)})
    return core, sent


def chunk(df: Dataflow, index: int, version: int, hops: int = 0, call: int = 0, source: int = 0) -> Chunk:
    send = df._definition.stages[0]
    return Chunk(0, 0, 0, call, send.id, source, Y, index, version, hops, [np.ones(1)])


PLACED = {(X, 0): 0, (X, 1): 1, (Y, 0): 0, (Y, 1): 1}


def test_a_stale_message_is_forwarded_with_the_version_known_here() -> None:
    df, _ = exchange()
    core, sent = core_of(df, 0, PLACED, versions=3)
    core.receive(1, chunk(df, index=1, version=2))
    ((worker, passed),) = sent.take()
    assert isinstance(passed, Chunk) and (worker, passed.version, passed.hops) == (1, 3, 1)


def test_a_message_of_a_newer_map_is_held_until_the_news_is_here() -> None:
    df, _ = exchange()
    core, sent = core_of(df, 0, PLACED)
    core.receive(1, chunk(df, index=1, version=2))
    assert sent.take() == [] and core.counts[Action.HOLD] == 1
    core.check_invariants()
    core.receive(-1, MapUpdate(0, Y, 1, 2, 3))
    ((worker, passed),) = sent.take()
    assert isinstance(passed, Chunk) and (worker, passed.version) == (2, 3)
    core.check_invariants()


def test_two_holders_of_one_version_are_refused() -> None:
    df, _ = exchange()
    core, _ = core_of(df, 0, PLACED)
    with pytest.raises(ProtocolError, match="version 1, came to worker 0, whose map of version 1 names worker 1"):
        core.receive(1, chunk(df, index=1, version=1))


def test_a_message_that_was_passed_on_too_often_is_refused() -> None:
    df, _ = exchange()
    core, sent = core_of(df, 0, PLACED, versions=3)
    core.receive(1, chunk(df, index=1, version=2, hops=HOPS_MAX - 1))
    assert len(sent.take()) == 1
    with pytest.raises(ProtocolError, match=f"passed on {HOPS_MAX} times"):
        core.receive(1, chunk(df, index=1, version=2, hops=HOPS_MAX))


def test_the_same_chunk_twice_is_refused() -> None:
    df, _ = exchange()
    core, _ = core_of(df, 0, PLACED)
    core.receive(1, chunk(df, index=0, version=1))
    with pytest.raises(ProtocolError, match="came twice"):
        core.receive(1, chunk(df, index=0, version=1))
    with pytest.raises(ProtocolError, match="covered twice"):
        core.receive(1, Marker(0, 0, 0, 0, 0, (0,), Y, 0, 1, 0))


def test_a_partition_moves_with_the_last_call_and_the_chunks_that_came_for_it() -> None:
    df, _ = exchange()
    old, from_old = core_of(df, 0, PLACED)
    new, from_new = core_of(df, 2, PLACED)
    old.receive(1, chunk(df, index=0, version=1, source=1))
    new.receive(-1, Move(0, Y, 0, 2, 0))
    ((to, give),) = from_new.take()
    assert to == 0 and give == Give(0, Y, 0, 2, 2, 0)
    old.receive(2, give)
    old.step()
    ((to, partition),) = from_old.take()
    assert to == 2 and isinstance(partition, Partition) and partition.last == {Y: -1}
    assert [(call, list(chunks)) for call, _, chunks, _ in partition.arrived] == [(0, [1])]
    assert (Y, 0) not in old.held and (Y, 0) not in old.store
    new.receive(0, partition)
    assert (Y, 0) in new.held and new.placed[Y, 0].worker == old.placed[Y, 0].worker == 2
    for core in (old, new):
        core.check_invariants()
    with pytest.raises(ProtocolError, match="was not awaited"):
        new.receive(0, partition)
    with pytest.raises(ProtocolError, match="which is not here"):
        old.receive(2, give)
    with pytest.raises(ProtocolError, match="which it has or awaits"):
        new.receive(-1, Move(0, Y, 0, 3, 0))


def test_messages_of_other_epochs_are_dropped() -> None:
    df, _ = exchange()
    core, _ = core_of(df, 0, PLACED)
    for epoch in (5, -1):
        core.epoch = epoch
        core.receive(1, chunk(df, index=0, version=1))
        assert not core.counts


def loop_of(df: Dataflow) -> tuple[Any, Any, Any]:
    total = df.single(np.zeros(1), name="total")

    @df.stage(writes=[total])
    def one(total: Any) -> None:
        total += 1

    @df.stage(writes=[total])
    def other(total: Any) -> None:
        total += 2

    @df.signal(on=total)
    def more(total: Any) -> Any:
        return total[0] < 6

    return one, other, more


def test_programs_that_part_are_refused_and_both_stages_named() -> None:
    df, common = exchange()
    one, other, more = loop_of(df)

    def program() -> Any:
        common()
        while more():
            one()

    def parted() -> Any:
        common()
        while more():
            other()

    world = World(df, program, 2, Random(1), programs={1: parted})
    with pytest.raises(ProgramDiverged) as caught:
        world.run()
    assert caught.value.here != caught.value.there or caught.value.call > 2
    assert "a program may branch on signals alone" in str(caught.value)


def test_a_signal_that_others_do_not_call_is_refused() -> None:
    df, _ = exchange()
    one, _, more = loop_of(df)

    @df.scatter(reads=[df.partition(np.arange(2.0))], to=df.partition(np.zeros(2)))
    def stray(x: Any) -> Any:
        yield 0, x

    gathered = df.gather(stray, name="gathered")(lambda chunks: None)

    def program() -> Any:
        one()
        more()

    def parted() -> Any:
        stray()
        gathered()
        more()

    for seed in range(3):
        world = World(df, program, 2, Random(seed), programs={1: parted})
        with pytest.raises(ProgramDiverged):
            world.run()


def test_an_exception_of_a_stage_names_stage_and_partition() -> None:
    df, _ = exchange()
    bad = df.stage(writes=[df.partition(np.arange(2), name="Z")], name="bad")(lambda z: z.fail())

    def program() -> Any:
        bad()

    with pytest.raises(AttributeError) as caught:
        World(df, program, 2, Random(1)).run()
    assert caught.value.__notes__[0].startswith("in stage bad, partition ")


def test_a_signal_a_round_is_all_that_workers_hear_of_a_program_without_exchange() -> None:
    """No word of the controller's, and none to it but the signals themselves."""
    df, _ = exchange()
    one, _, more = loop_of(df)

    def program() -> Any:
        while more():
            one()

    world = World(df, program, 4, Random(1))
    world.run()
    assert world.sent == {"Told": 7 * 3}
