"""An attempt's states: the table of transitions, and random events that keep to it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node_monitor.attempts import PLACED, RUNS, TRANSITIONS, WAITS, Attempt, RememberingAttempt, State
from node_monitor.jobs import LocalJob
from node_monitor.queueing.tickets import Charge, QueuedTicket
from sparrow_py.errors import InvariantViolated
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, POOL, NodeCore
from tests.support.recorder import reserve

BY_VALUE = {state.value: state for state in State}


def attempt(kind: type[Attempt] = Attempt) -> Attempt:
    charge = Charge(QueuedTicket(("s", 1), "j", "anna"), 0.1)
    return kind(LocalJob("s", "j", 1), 7, 3, b"", None, (), charge)


@pytest.mark.parametrize("kind", [Attempt, RememberingAttempt])
@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_a_state_is_followed_by_those_that_the_table_names_and_by_no_other(
    kind: type[Attempt], before: State, after: State
) -> None:
    one = attempt(kind)
    one.state = before
    if after in TRANSITIONS[before]:
        one.becomes(after)
        assert one.state is after
    else:
        with pytest.raises(InvariantViolated, match=f"attempt 3 of task 7 of job j: '{before.value}' cannot become"):
            one.becomes(after)
        assert one.state is before


def test_the_error_tells_the_attempts_story_where_it_is_remembered() -> None:
    one = attempt(RememberingAttempt)
    for state in (WAITS, RUNS):
        one.becomes(state)
    with pytest.raises(InvariantViolated) as caught:
        one.becomes(PLACED)
    assert str(caught.value).splitlines()[2:] == ["placed", "waits for its inputs", "runs"]
    assert attempt().story() == [], "it costs nothing where it is not"


def test_every_state_can_be_reached_and_left() -> None:
    reached = {state for after in TRANSITIONS.values() for state in after}
    assert reached == set(State) - {PLACED} and list(TRANSITIONS) and set(TRANSITIONS) == set(State)
    assert [state for state, after in TRANSITIONS.items() if not after] == [State.ENDED]


class RandomEvents(RuleBasedStateMachine):
    """A node with two schedulers that sample and one that places, where users prefetch, cancel and lose executors, and
    jobs are claimed."""

    def __init__(self) -> None:
        super().__init__()
        self.node = NodeCore(2, [POOL, MANY], schedulers="st", history_len_max=100, resources={"cpu": 2.0})
        self.node.core.scheduler_up("f", plane=m.FLOW)
        self.lead = 1
        self.node.receive(m.Lead(m.FLOW, 1), scheduler="f")
        self.node.core.executor_up("e", "many", 2, 0.0)
        self.executors = {"p0": 1, "p1": 1, "e": 2}
        self.tickets: dict[tuple[str, int], str] = {}
        self.asks: list[tuple[str, m.GetTasks]] = []
        self.given: dict[str, list[int]] = {}
        self.revoked: list[tuple[str, int]] = []
        self.fetches: list[BlobRef] = []
        self.seen: dict[Attempt, None] = {}
        self.numbers = 10

    def act(self) -> None:
        """What was sent arrives."""
        outbox = self.node.outbox
        for to, message in outbox.sent:
            if isinstance(message, m.GetTasks):
                self.asks.append((to, message))
            elif isinstance(message, x.Run):
                self.given.setdefault(to, []).append(message.run)
            elif isinstance(message, x.Revoke):
                self.revoked += [(to, run) for run in message.runs]
        outbox.sent.clear()
        self.fetches += outbox.fetches
        outbox.fetches.clear()
        self.seen.update(dict.fromkeys(self.node.core.attempts.by_key.values()))

    def go_on(self, seconds: float) -> None:
        self.node.tick(self.node.now_s + seconds)
        self.act()

    @rule(
        scheduler=st.sampled_from("st"),
        user=st.sampled_from(["anna", "bert"]),
        app=st.sampled_from(["pool", "many"]),
        count=st.integers(1, 12),
        prefetch=st.sampled_from([0, 8]),
    )
    def reserve(self, scheduler: str, user: str, app: str, count: int, prefetch: int) -> None:
        self.numbers += 1
        self.tickets[scheduler, self.numbers] = user + app
        message = reserve(self.numbers, count, app=app, user=user, job=user + app, prefetch=prefetch)
        self.node.receive(message, scheduler=scheduler)
        self.act()

    @precondition(lambda self: self.asks)
    @rule(large=st.sampled_from(["", "", "", "a", "b"]))
    def answer(self, large: str) -> None:
        scheduler, ask = self.asks.pop(0)
        for _ in range(ask.count):
            self.numbers += 1
            payload: m.Data = BlobRef(large * 64, 9, (f"far:{self.numbers}",)) if large else b"p"
            job = self.tickets[scheduler, ask.ticket]
            self.node.receive(m.Launch(ask.ask, job, 0, 0, self.numbers, payload), scheduler=scheduler)
        self.act()

    @precondition(lambda self: self.asks)
    @rule()
    def answer_no_task(self) -> None:
        scheduler, ask = self.asks.pop()
        self.node.receive(m.NoTask(ask.ask, ask.count), scheduler=scheduler)
        self.act()

    @precondition(lambda self: any(self.given.values()))
    @rule(pick=st.integers(0, 99), status=st.sampled_from([TaskStatus.FINISHED, TaskStatus.FAILED]), more=st.booleans())
    def done(self, pick: int, status: TaskStatus, more: bool) -> None:
        busy = [executor for executor, runs in self.given.items() if runs]
        executor = busy[pick % len(busy)]
        runs = self.given[executor]
        ended = [runs.pop(0) for _ in range(len(runs) if more else 1)]
        said = [x.Done(run, status, b"", "", 0.0, 0.0001) for run in ended]
        self.node.now_s += 0.0001
        self.node.core.done_together(executor, said, self.node.now_s)
        self.node.settle()
        self.act()

    @rule(
        user=st.sampled_from(["anna", "bert"]),
        app=st.sampled_from(["pool", "many"]),
        count=st.integers(1, 4),
        cpus=st.sampled_from([None, 0.5, 2.0]),
        large=st.sampled_from(["", "", "", "a"]),
    )
    def place(self, user: str, app: str, count: int, cpus: float | None, large: str) -> None:
        demand = None if cpus is None else {"cpu": cpus}
        for _ in range(count):
            self.numbers += 1
            payload: m.Data = BlobRef(large * 64, 9, (f"far:{self.numbers}",)) if large else b"p"
            number, lead = self.numbers, self.lead
            launch = m.LaunchPlaced(user + app, 0, 0, number, payload, lead, user, 1.0, 0, app, None, demand)
            self.node.receive(launch, scheduler="f")
        self.act()

    @rule()
    def another_leads(self) -> None:
        self.lead += 1
        self.node.core.scheduler_up("g", plane=m.FLOW)
        self.node.receive(m.Lead(m.FLOW, self.lead), scheduler="g")
        self.node.core.scheduler_down("g", self.node.now_s)
        self.lead += 1
        self.node.receive(m.Lead(m.FLOW, self.lead), scheduler="f")
        self.act()

    @precondition(lambda self: self.node.core.attempts.by_key or self.node.core.lane.waiting)
    @rule(pick=st.integers(0, 99), running=st.booleans(), preempt=st.booleans())
    def cancel(self, pick: int, running: bool, preempt: bool) -> None:
        keys = [*self.node.core.attempts.by_key, *self.node.core.lane.waiting]
        scheduler, job, number = keys[pick % len(keys)]
        self.node.receive(m.CancelAttempt(job, number, running, preempt), scheduler=scheduler)
        self.act()

    @precondition(lambda self: self.revoked)
    @rule(returns=st.booleans())
    def answer_revoke(self, returns: bool) -> None:
        executor, run = self.revoked.pop(0)
        runs = self.given.get(executor, [])
        returns = returns and run in runs[1:]
        if returns:
            runs.remove(run)
        if executor in self.executors:
            self.node.returned(executor, *([run] if returns else []))
        self.act()

    @precondition(lambda self: self.fetches)
    @rule(comes=st.booleans())
    def fetched(self, comes: bool) -> None:
        ref = self.fetches.pop(0)
        if comes:
            self.node.blobs.add(ref)
        self.node.core.fetched("anna", ref.hash, "" if comes else "404", self.node.now_s)
        self.node.settle()
        self.act()

    @rule(pick=st.integers(0, 99), failure=st.sampled_from(["", "out of memory"]))
    def executor_dies_and_another_comes(self, pick: int, failure: str) -> None:
        killed = self.node.outbox.killed
        executor = killed.pop() if killed else list(self.executors)[pick % len(self.executors)]
        if executor not in self.executors:
            return
        places = self.executors.pop(executor)
        self.given.pop(executor, None)
        self.revoked = [pair for pair in self.revoked if pair[0] != executor]
        self.node.core.executor_down(executor, "it was killed", self.node.now_s, failure)
        self.numbers += 1
        self.executors[f"p{self.numbers}"] = places
        self.node.core.executor_up(f"p{self.numbers}", "pool" if places == 1 else "many", places, self.node.now_s)
        self.node.settle()
        self.act()

    @rule(
        scheduler=st.sampled_from("st"),
        job=st.sampled_from(["annapool", "bertmany"]),
        epoch=st.integers(0, 2),
    )
    def claim(self, scheduler: str, job: str, epoch: int) -> None:
        self.node.receive(m.Claim(job, job[:4], epoch), scheduler=scheduler)
        self.act()

    @rule(scheduler=st.sampled_from("stf"))
    def scheduler_comes_anew(self, scheduler: str) -> None:
        self.asks = [ask for ask in self.asks if ask[0] != scheduler]
        self.node.core.scheduler_down(scheduler, self.node.now_s)
        self.node.core.scheduler_up(scheduler, plane=m.FLOW if scheduler == "f" else m.SPARROW)
        self.node.settle()
        self.act()

    @rule(seconds=st.sampled_from([0.0005, 0.06, 1.1, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.go_on(seconds)

    @invariant()
    def states_follow_as_the_table_says(self) -> None:
        self.node.core.check_invariants()
        for one in self.seen:
            states = [BY_VALUE[value] for value in one.story()]
            assert states[0] is PLACED
            assert all(after in TRANSITIONS[before] for before, after in pairwise(states)), one.story()
            here = self.node.core.attempts.by_key.get(one.key) is one
            assert here == (one.state is not State.ENDED), "an attempt is here until it has ended"

    @invariant()
    def placed_tasks_wait_for_something_and_not_for_long(self) -> None:
        core = self.node.core
        assert core.occupied <= core.slots
        for task in core.lane.waiting.values():
            assert self.node.now_s < task.came_at_s + core.options.lane_timeout_s
        first = next(iter(core.lane.waiting.values()), None)
        if first is not None and core.free_slots and not core.lane.full and first.app.serves(first.ticket.user):
            assert core.free["cpu"] < (first.ticket.demand or {}).get("cpu", 0.0)


RandomEvents.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestRandomEvents = RandomEvents.TestCase
