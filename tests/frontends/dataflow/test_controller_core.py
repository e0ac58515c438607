"""The controller's core: epochs, workers that come, yield and are lost, snapshots, runs after one another."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.dataflow import Dataflow
from frontends.dataflow.control_messages import (
    Ask,
    Beat,
    Dismiss,
    Enter,
    GiveBack,
    GivenUp,
    Hello,
    Layout,
    Leaving,
    Left,
    Outcome,
    Over,
    PeerLost,
    Progress,
    Ready,
    Received,
    RunFailed,
    RunOver,
    Runs,
    Settings,
    Shipped,
    StoreAll,
    Unreachable,
    Used,
    Withdraw,
)
from frontends.dataflow.controller_core import (
    CUT_OFF_PATIENCE_S,
    DEAD_AFTER_S,
    END,
    FRUITLESS_MAX,
    NEXT,
    START_FAILURES_MAX,
    START_PATIENCE_S,
    ControllerCore,
    Snapshot,
    State,
    WorkerState,
)
from frontends.dataflow.controller_effects import Key, Tell
from frontends.dataflow.messages import Arrived, Flag, Move, Stored, Told
from frontends.dataflow.placement import newcomers_share
from tests.support.dataflow_random import random_program
from tests.support.dataflow_world import World, run_three_times

SEEDS = st.integers(0, 1 << 30)
HERE = ("node", "", "127.0.0.1", 1)


@settings(max_examples=15)
@given(SEEDS)
def test_workers_that_come_yield_and_are_lost_change_no_answer(seed: int) -> None:
    """Three runs, each after the other; between them workers are lost, too."""
    df, program = random_program(seed)
    chance = Random(seed)
    world = World(df, program, chance.randint(1, 3), Random(seed + 1))
    run_three_times(world, program, chance)


def test_cells_that_define_more_between_runs_find_the_data_where_they_were() -> None:
    """A new stage joins what was placed apart: partitions move before the run begins."""
    for seed in range(5):
        df = Dataflow(partitions=4, progress=False)
        X, Y = df.partition(np.arange(8.0), name="X"), df.partition(np.ones(8), name="Y")
        total = df.single(np.zeros(1), name="total")
        double = df.stage(writes=[X], name="double")(_doubled)
        grow = df.stage(writes=[Y], name="grow")(_doubled)
        more = df.signal(on=total, name="more")(lambda total: False)

        def first(double: Any = double, grow: Any = grow, more: Any = more) -> None:
            double()
            grow()
            more()

        world = World(df, first, 3, Random(seed))
        world.run(moves=12)
        Z = df.empty(2, like=X, name="Z")
        both = df.stage(reads=[X, Y], writes=[Z], name="both")(_added)
        world.call(lambda both=both: both())  # type: ignore[misc]
        world.run(crashes=1)
        world.check_equal_to_inline()


@pytest.mark.parametrize("seed", [9, 14, 19])
def test_a_worker_joins_at_a_signal_that_is_told_long_before_its_block_is_over(seed: int) -> None:
    """No chunk of that block is sent to the newcomer, which could not pass the chunk on yet."""
    df = Dataflow(partitions=4, progress=False)
    X, count = df.partition(np.arange(16.0), name="X"), df.single(np.zeros(1), name="count")

    @df.scatter(reads=[X], to=X)
    def send(x: Any) -> Any:
        for index in range(4):
            yield index, x[index : index + 1].copy()

    @df.gather(send, writes=[X])
    def take(chunks: list[Any], x: Any) -> None:
        x[:] = np.concatenate(chunks)

    @df.stage(writes=[count])
    def tick(count: Any) -> None:
        count += 1

    more = df.signal(on=count, name="more")(lambda count: count[0] < 8)

    def program() -> None:
        while more():
            send()
            take()
            tick()

    world = World(df, program, 2, Random(seed))
    world.run(joins=2)
    world.check_equal_to_inline()


def _doubled(x: Any) -> None:
    x *= 2


def _added(x: Any, y: Any, z: Any) -> None:
    z[:] = x + y


# ---- by hand --------------------------------------------------------------------------------------


class Rig:
    """A core, and what it has said since the last look."""

    def __init__(self, whole: Mapping[Key, Snapshot] | None = None, *, seed: int = 1, **settings: Any) -> None:
        """`whole`: snapshots of an earlier controller."""
        given = {"workers": 2, "slots": 2, "min_workers": 1, "start_timeout_s": 10.0, "snapshot_every_s": None}
        given |= {"snapshot_dir": "", "first_epoch": 0, "first_worker": 0, "known": []}
        given |= settings
        self.now_s = 0.0
        self.core = ControllerCore(Settings(**given), Random(seed), whole)

    def run(self, number: int = 0, partitions: int = 2) -> list[Any]:
        shipped = Shipped(number, Layout((1, partitions), (0, 1)), b"", b"")
        return self.do(lambda: self.core.run(Runs([shipped], True), self.now_s))

    def do(self, event: Any) -> list[Any]:
        """The effects of an event: messages to the driver, and (worker, message)."""
        event()
        self.core.check_invariants()
        effects = self.core.take_effects()
        return [effect.message if isinstance(effect, Tell) else tuple(effect) for effect in effects]

    def hello(self, worker: int) -> list[Any]:
        return self.do(lambda: self.core.hello(worker, Hello(worker, HERE, ""), self.now_s))

    def hear(self, worker: int, message: Any) -> list[Any]:
        return self.do(lambda: self.core.receive(worker, message, self.now_s))

    def after(self, seconds: float) -> list[Any]:
        self.now_s += seconds
        told = self.do(lambda: self.core.tick(self.now_s))
        return [message for message in told if not isinstance(message, Progress)]

    def running(self, workers: int = 2, partitions: int = 2) -> Rig:
        self.run(partitions=partitions)
        for worker in range(workers):
            self.hello(worker)
        for worker in range(workers):
            self.hear(worker, Ready(0))
        assert self.core.state is State.RUNNING
        return self

    def sent(self, told: list[Any], kind: type) -> dict[int, Any]:
        return {one[0]: one[1] for one in told if isinstance(one, tuple) and isinstance(one[1], kind)}


def test_every_state_but_the_last_has_one_that_follows_and_all_are_named() -> None:
    assert NEXT.keys() == set(State) and not NEXT[State.CLOSED]
    assert all(State.CLOSED in follows for state, follows in NEXT.items() if state is not State.CLOSED)


def test_workers_are_asked_for_with_the_first_run_and_it_begins_when_all_are_here() -> None:
    rig = Rig()
    assert rig.run() == [Ask((0, 1))]
    assert rig.hello(0) == []
    told = rig.hello(1)
    entered = rig.sent(told, Enter)
    assert entered.keys() == {0, 1} and rig.core.state is State.LOADING
    assert sorted(entered[0].made + entered[1].made) == [(0, 0), (1, 0), (1, 1)]


def test_the_first_workers_do_not_wait_long_for_the_others() -> None:
    rig = Rig()
    rig.run()
    rig.hello(0)
    assert rig.after(START_PATIENCE_S / 2) == []
    assert rig.sent(rig.after(START_PATIENCE_S), Enter).keys() == {0}
    rig.hear(0, Ready(0))
    (flag,) = rig.sent(rig.hello(1), Flag).values()
    assert flag.joins == 1 and rig.core.workers[1].state is WorkerState.JOINING


def test_more_workers_than_slots_are_not_waited_for() -> None:
    rig = Rig(workers=5, slots=1)
    assert rig.run() == [Ask((0, 1, 2, 3, 4))]
    assert rig.sent(rig.hello(0), Enter).keys() == {0}


def test_too_few_workers_give_their_slots_back_and_are_asked_for_again_after_a_while() -> None:
    """So programs that each hold some of the slots that the other waits for cannot do so for ever."""
    rig = Rig(min_workers=2)
    rig.run()
    rig.hello(0)
    told = rig.after(10.5)
    assert rig.sent(told, Dismiss).keys() == {0} and Withdraw((1,)) in told
    assert rig.after(1) == []
    assert rig.after(14) == [Ask((2, 3))]


@settings(max_examples=40)
@given(st.integers(0, 1 << 30), st.integers(2, 4), st.integers(2, 4))
def test_programs_that_need_each_others_slots_all_run_in_the_end(seed: int, programs: int, slots: int) -> None:
    """Each needs all slots; those that are free go to any of the workers that are asked for."""
    chance = Random(seed)
    rigs = {one: Rig(min_workers=slots, workers=slots, slots=slots, seed=seed + one) for one in range(programs)}
    wanted: list[tuple[int, int]] = []
    free = slots

    def carry_out(one: int, told: list[Any]) -> None:
        nonlocal free, wanted
        for message in told:
            if isinstance(message, Ask):
                wanted += [(one, worker) for worker in message.workers]
            elif isinstance(message, Withdraw):
                wanted = [each for each in wanted if each[0] != one or each[1] not in message.workers]
            elif isinstance(message, tuple) and isinstance(message[1], Dismiss):
                free += 1

    for one, rig in rigs.items():
        carry_out(one, rig.run())
    for _ in range(2000):
        while free and wanted:
            one, worker = wanted.pop(chance.randrange(len(wanted)))
            free -= 1
            carry_out(one, rigs[one].hello(worker))
        for one, rig in list(rigs.items()):
            if rig.core.state is State.LOADING:  # It has all it needs; it ends at once.
                del rigs[one]
                wanted = [each for each in wanted if each[0] != one]
                free += slots
                continue
            for worker in rig.core.workers:
                rig.hear(worker, Beat(worker))  # It would be taken for lost, and its slot be free again.
            carry_out(one, rig.after(chance.uniform(0.5, 1.5)))
        if not rigs:
            return
    raise AssertionError(f"{len(rigs)} programs wait for ever")


def test_a_worker_that_nobody_asked_for_is_sent_away() -> None:
    rig = Rig()
    rig.run()
    assert rig.sent(rig.hello(7), Dismiss).keys() == {7}


def test_a_lost_worker_is_replaced_and_all_start_over() -> None:
    rig = Rig().running()
    told = rig.do(lambda: rig.core.lost(1, "gone", 0.0))
    entered = rig.sent(told, Enter)
    assert entered.keys() == {0} and entered[0].epoch == 1 and len(entered[0].made) == 3
    assert Ask((2,)) in told and rig.core.state is State.ROLLING_BACK


def test_a_worker_of_which_nothing_is_heard_is_lost() -> None:
    rig = Rig().running()
    for _ in range(3):
        rig.hear(0, Used(0, [], 0, 0))
        told = rig.after(DEAD_AFTER_S / 2)
    assert rig.sent(told, Enter).keys() == {0} or rig.core.epoch == 1
    assert 1 not in rig.core.workers


def test_a_run_that_is_rolled_back_again_and_again_and_comes_no_further_is_given_up() -> None:
    rig = Rig().running()
    told: list[Any] = []
    for worker in range(1, FRUITLESS_MAX + 3):
        told = rig.do(lambda worker=worker: rig.core.lost(worker, "it was killed", 0.0))  # type: ignore[misc]
        if rig.core.state is State.IDLE:
            break
        rig.hello(worker + 1)
        for member in rig.core.members():
            rig.hear(member, Ready(rig.core.epoch))
        rig.core.workers[worker + 1].state = WorkerState.MEMBER
    (given_up,) = [message for message in told if isinstance(message, GivenUp)]
    assert "came no further" in given_up.why and "it was killed" in given_up.why


def test_workers_that_do_not_start_are_an_error_that_says_why() -> None:
    rig = Rig()
    rig.run()
    for number in range(START_FAILURES_MAX):
        told = rig.do(lambda number=number: rig.core.outcome(Outcome(number, "no driver at 10.0.0.1"), 0.0))  # type: ignore[misc]
    (given_up,) = [message for message in told if isinstance(message, GivenUp)]
    assert "did not start: no driver at 10.0.0.1" in given_up.why and rig.core.state is State.IDLE


def test_workers_of_an_earlier_controller_that_ended_meanwhile_are_replaced_and_no_failed_starts() -> None:
    rig = Rig(workers=START_FAILURES_MAX, first_worker=7, known=list(range(START_FAILURES_MAX)))
    assert rig.run() == []
    for number in range(START_FAILURES_MAX):
        told = rig.do(lambda number=number: rig.core.outcome(Outcome(number, "it was killed"), 0.0))  # type: ignore[misc]
        assert told == [Ask((7 + number,))]


AWAY = Unreachable("no scheduler has been reached for 10 s: scheduler 10.0.0.1:1 cannot be reached")


def given_up(told: list[Any]) -> str:
    """Why the run was given up."""
    (message,) = [message for message in told if isinstance(message, GivenUp)]
    return str(message.why)


def test_a_run_goes_on_without_schedulers_until_it_needs_a_worker() -> None:
    rig = Rig(min_workers=2).running()
    assert rig.do(lambda: rig.core.unreachable(AWAY, 0.0)) == [] and rig.core.state is State.RUNNING
    why = given_up(rig.do(lambda: rig.core.lost(1, "gone", 0.0)))
    assert why == f"the run needs 2 and has 1 worker, and {AWAY.why}"
    assert rig.core.state is State.IDLE


def test_a_run_that_waits_for_workers_is_given_up_once_no_scheduler_is_reached_and_the_next_one_at_once() -> None:
    rig = Rig()
    rig.run()
    assert AWAY.why in given_up(rig.do(lambda: rig.core.unreachable(AWAY, 0.0)))
    assert AWAY.why in given_up(rig.run(1))
    assert rig.hello(0) == [] and rig.core.state is State.IDLE  # It was on its way.
    assert rig.sent(rig.run(2), Enter) == {} and rig.core.state is State.GATHERING
    assert rig.sent(rig.after(START_PATIENCE_S), Enter).keys() == {0}


def test_a_scheduler_that_is_back_starts_the_workers_that_are_missing() -> None:
    rig = Rig().running()
    rig.do(lambda: rig.core.unreachable(AWAY, 0.0))
    rig.do(lambda: rig.core.lost(1, "gone", 0.0))  # One is enough.
    assert rig.do(lambda: rig.core.unreachable(Unreachable(""), 0.0)) == [] and rig.core.state is State.ROLLING_BACK
    told = rig.do(lambda: rig.core.lost(0, "gone", 0.0))
    assert Ask((3,)) in told and rig.core.state is State.GATHERING
    assert rig.sent(rig.hello(2), Enter) == {} and rig.sent(rig.hello(3), Enter).keys() == {2, 3}


def test_tasks_that_the_client_gives_up_as_no_scheduler_is_reached_end_the_run() -> None:
    """However well their workers do: none of them is the cluster's any more."""
    rig = Rig().running()
    rig.do(lambda: rig.core.unreachable(AWAY, 0.0))
    told = rig.do(lambda: rig.core.outcome(Outcome(0, "no scheduler took job j within 60 s"), 0.0))
    assert given_up(told) == f"the task of worker 0 is lost: no scheduler took job j within 60 s; {AWAY.why}"
    told += rig.do(lambda: rig.core.outcome(Outcome(1, "no scheduler took job k within 60 s"), 0.0))
    assert rig.sent(told, Dismiss).keys() == {0, 1} and not rig.core.workers


def test_a_worker_whose_task_is_lost_is_dismissed_though_its_link_stands() -> None:
    rig = Rig().running()
    told = rig.do(lambda: rig.core.outcome(Outcome(1, "its node is gone"), 0.0))
    assert rig.sent(told, Dismiss).keys() == {1} and rig.sent(told, Enter).keys() == {0}


def test_two_workers_that_do_not_reach_each_other_are_a_failure_unless_one_is_soon_known_to_be_lost() -> None:
    rig = Rig().running()
    rig.hear(0, PeerLost(0, 1, "refused"))
    assert rig.after(CUT_OFF_PATIENCE_S / 2) == []
    assert rig.sent(rig.after(CUT_OFF_PATIENCE_S), Enter).keys() == {0, 1}


def test_a_worker_that_has_left_is_not_missed_by_those_whose_links_with_it_end() -> None:
    rig = Rig(workers=4, slots=4).running(4)
    rig.hear(3, Leaving(3, 5.0))
    assert rig.hear(3, Left(0)) and 3 not in rig.core.workers
    for other in range(3):
        rig.hear(other, PeerLost(0, 3, "the link was closed there"))
    rig.after(2 * CUT_OFF_PATIENCE_S)
    assert rig.core.rollbacks == 0 and rig.core.state is State.RUNNING


def test_an_exception_ends_the_run_everywhere_and_the_next_one_starts_over() -> None:
    rig = Rig().running()
    told = rig.hear(1, RunFailed(0, b"it"))
    assert GivenUp(0, b"it", "") in told and rig.core.state is State.IDLE
    assert rig.hear(0, RunFailed(0, b"again")) == []
    entered = rig.sent(rig.run(1), Enter)
    assert len(entered[0].made) + len(entered[1].made) == 3


def test_a_run_is_over_when_it_is_at_all_workers_and_what_it_returned_comes_from_the_holders() -> None:
    rig = Rig().running()
    assert rig.hear(0, RunOver(0, 1, 5, b"first", (1,))) == []
    told = rig.hear(1, RunOver(0, 1, 5, b"second", (1,)))
    assert Over(0, 0, b"first", (0, 1)) in told and rig.core.state is State.RETURNING
    asked = rig.sent(told, GiveBack)
    assert sorted(asked[0].places + asked[1].places) == [(1, 0), (1, 1)]
    rig.do(lambda: rig.core.received(Received(0), 0.0))
    assert rig.core.state is State.IDLE and rig.core.live
    entered = rig.sent(rig.run(1), Enter)
    assert len(entered[0].kept) + len(entered[1].kept) == 3


def test_programs_that_end_at_different_places_are_refused() -> None:
    rig = Rig().running()
    rig.hear(0, RunOver(0, 1, 5, b"", ()))
    (given_up, *_) = rig.hear(1, RunOver(0, 2, 5, b"", ()))
    assert "diverged" in given_up.why


def test_a_worker_that_has_to_yield_gives_its_partitions_away_and_another_is_asked_for() -> None:
    rig = Rig().running()
    told = rig.hear(1, Leaving(1, 5.0))
    assert rig.sent(told, Move).keys() == {0} and Ask((2,)) in told
    assert rig.core.workers[1].state is WorkerState.LEAVING


def joining() -> Rig:
    """Two workers that are in the run, and a third that is a member since a signal, and not ready yet."""
    rig = Rig().running(partitions=6)
    rig.hear(0, Leaving(0, 5.0))
    (flag, _) = rig.sent(rig.hello(2), Flag).values()
    told = rig.hear(0, Told(0, 0, 5, 3, 2, True, 0, (flag,)))
    assert rig.core.workers[2].state is WorkerState.MEMBER
    assert rig.sent(told, Enter).keys() == {2} and not rig.sent(told, Move)
    return rig


def test_a_newcomer_gets_no_partition_before_it_has_begun() -> None:
    """Whoever ran the signal, and welcomes the newcomer at the end of its block, may need for that block chunks that
    others send to the newcomer."""
    rig = joining()
    assert rig.core.placed.held_by(2) == []
    told = rig.hear(2, Ready(0))
    assert rig.sent(told, Move).keys() == {2} and len(rig.core.placed.held_by(2)) == 3


def test_workers_that_have_to_yield_wait_for_the_newcomer_that_is_about_to_begin() -> None:
    rig = joining()
    told = rig.hear(1, Leaving(1, 5.0))
    assert not rig.sent(told, Move) and not rig.sent(told, Flag), "one stays, so that no snapshot is needed"
    rig.hear(2, Ready(0))
    for slot, (_, destination) in list(rig.core.moving.items()):
        rig.hear(destination, Arrived(0, *slot, rig.core.placed[slot].version))
    assert len(rig.core.placed.held_by(2)) == len(rig.core.placed)


def test_the_last_to_yield_makes_a_snapshot_first() -> None:
    rig = Rig(workers=1).running(1)
    (flag,) = rig.sent(rig.hear(0, Leaving(0, 5.0)), Flag).values()
    assert flag.snapshot


def test_snapshots_are_made_as_often_as_stated() -> None:
    rig = Rig(snapshot_every_s=3.0).running()
    assert rig.after(1) == []
    assert {flag.snapshot for flag in rig.sent(rig.after(2.5), Flag).values()} == {True}
    assert rig.after(4) == []  # The first is being made.


def test_partitions_that_take_long_move_to_the_worker_that_has_less_to_do() -> None:
    rig = Rig().running(partitions=4)
    slow = rig.core.placed.held_by(0)[-1]
    told: list[Any] = []
    while not rig.sent(told, Move):
        rig.hear(0, Used(0, [(1, 0, 100), (*slow, 300)], 10, 1))
        rig.hear(1, Used(0, [(1, 2, 50), (1, 3, 50)], 10, 1))
        told = rig.after(0.6)
    assert rig.now_s < 5 and rig.sent(told, Move).keys() == {1}


def test_reports_that_are_for_different_times_are_not_taken_for_uneven_load() -> None:
    """Both workers are busy all the time, and report between blocks: one after 0.7 s and then 0.5 s, the other after
    0.5 s and then 0.7 s."""
    rig = Rig().running(partitions=20)
    for round_ in range(10):
        for at_s, worker, busy_s in [(0.5, 1, 0.5), (0.7, 0, 0.7), (1.2, 0, 0.5), (1.2, 1, 0.7)]:
            rig.now_s = 1.2 * round_ + at_s
            each_ns = int(busy_s * 1e9 / 10)
            rig.hear(worker, Used(0, [(*slot, each_ns) for slot in rig.core.placed.held_by(worker)[-10:]], 10, 1))
            if (at_s, worker) in [(0.7, 0), (1.2, 1)]:
                rig.after(0.001)  # A look.
    assert rig.core.moves == 0


def test_close_dismisses_all() -> None:
    rig = Rig().running()
    assert rig.sent(rig.do(rig.core.close), Dismiss).keys() == {0, 1}
    assert rig.core.state is State.CLOSED


def test_a_snapshot_between_runs_is_of_the_end() -> None:
    df, program = random_program(3)
    world = World(df, program, 1, Random(2))
    world.run()
    world.leave(0)
    for _ in range(200):
        for link in world._deliverable():
            world.deliver(link)
    assert (0, END) in world.whole and not world.workers
    world.call(program)
    world.run()
    world.check_equal_to_inline()


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_a_newcomer_takes_its_share_of_each_group(workers: int) -> None:
    others = range(workers - 1)
    placed = {(group, index): others[index % len(others)] for group in (1, 2) for index in range(10)}
    taken = newcomers_share(placed, workers - 1, range(workers))
    assert sorted(slot[0] for slot in taken) == sorted([1, 2] * (10 // workers))
    assert len(set(taken)) == len(taken)


def test_what_is_stored_of_a_snapshot_that_a_later_one_has_overtaken_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the run has ended meanwhile, and all was stored then."""
    monkeypatch.setattr("frontends.dataflow.controller_core.RUNS_KEPT_MAX", 0)
    rig = Rig().running()
    rig.do(rig.core.make_snapshot)
    for worker in (0, 1):
        rig.hear(worker, RunOver(0, 1, 5, b"", ()))
    rig.do(lambda: rig.core.received(Received(0), 0.0))
    assert rig.hear(0, Stored(0, END, {(0, 0): 1, (1, 0): 2, (1, 1): 3}))
    assert not rig.core.runs, "none is needed any more"
    assert rig.hear(1, Stored(0, 0, {})) == []
    assert rig.core.snapshots.keys() == {(0, END)}


@pytest.mark.parametrize(("before", "until"), [((3, END), 0), ((4, 7), 8)])
def test_snapshots_of_a_run_that_was_given_up_since_are_not_gone_on_from(before: Key, until: int) -> None:
    """The driver has ended it while there was no controller: by Ctrl-C, or as it could not read what came."""
    places = {(0, 0), (1, 0), (1, 1)}
    rig = Rig({before: Snapshot(places, {7: True}), (5, 2): Snapshot(places, {2: True})})
    runs = [Shipped(number, Layout((1, 2), (0, 1)), b"", b"") for number in (4, 6)]
    told = rig.do(lambda: rig.core.run(Runs(runs, True), 0.0))
    assert ((5, 2),) in told and before in rig.core.snapshots
    rig.hello(0)
    told = rig.hello(1)
    entered = rig.sent(told, Enter)
    assert {(enter.shipped.run, enter.until) for enter in entered.values()} == {(4, until)}
    stored = [effect for effect in told if isinstance(effect, tuple) and len(effect) == 4]
    assert {key for _, _, key, _ in stored} == {before}, "values are those of the snapshot"


def test_numbers_of_runs_that_failed_are_left_out() -> None:
    rig = Rig().running()
    for worker in (0, 1):
        rig.hear(worker, RunOver(0, 1, 5, b"", ()))
    rig.do(lambda: rig.core.received(Received(0), 0.0))
    rig.run(1)
    rig.hear(0, RunFailed(1, b"it"))
    first = rig.sent(rig.run(2), Enter)
    assert {enter.shipped.run for enter in first.values()} == {0}
    for worker in (0, 1):
        rig.hear(worker, Ready(rig.core.epoch))
    for worker in (0, 1):
        told = rig.hear(worker, RunOver(rig.core.epoch, 1, 5, b"", ()))
    assert {enter.shipped.run for enter in rig.sent(told, Enter).values()} == {2}


@pytest.mark.parametrize(("allowed", "stored"), [(0, {0, 1}), (10, set())])
def test_with_too_many_bytes_of_runs_a_snapshot_is_made_after_a_run(
    allowed: int, stored: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontends.dataflow.controller_core.RUNS_KEPT_BYTES_MAX", allowed)
    rig = Rig()
    shipped = Shipped(0, Layout((1, 2), (0, 1)), b"stages", b"...")
    rig.do(lambda: rig.core.run(Runs([shipped], True), 0.0))
    for worker in (0, 1):
        rig.hello(worker)
    for message in (Ready(0), RunOver(0, 1, 5, b"", ())):
        for worker in (0, 1):
            rig.hear(worker, message)
    assert rig.sent(rig.do(lambda: rig.core.received(Received(0), 0.0)), StoreAll).keys() == stored
