"""An attempt that has a place at an executor of this node: its states, and what may follow each.

The states say what the node monitor has decided. What the executor does meanwhile becomes known later: for some
milliseconds nobody but the executor knows which of its runs it works for. So an attempt that was asked back may run.
"""

from __future__ import annotations

from enum import Enum

from node_monitor.jobs import CommonBytes, LocalJob
from node_monitor.queueing.tickets import AheadOfTurn, Charge
from sparrow_py.errors import InvariantViolated
from sparrow_py.job import TaskStatus
from sparrow_py.wire.messages import Data


class State(Enum):
    """Of an attempt at this node."""

    may_become: tuple[State, ...]
    """The states that may follow, as `TRANSITIONS` says."""

    PLACED = "placed"
    """It has a place, its charge and its resources; its executor does not have it yet. Also the first state of what was
    pushed to a free slot (`LaunchNow`): before, there is none, as what cannot be placed at once is handed back."""
    WAITS = "waits for its inputs"
    """Large data that it needs are being fetched."""
    GIVEN_AHEAD = "given ahead"
    """Its executor has it, behind another run."""
    RUNS = "runs"
    """Its executor works for it, as far as is known."""
    ASKED_BACK = "asked back"
    """It was behind another run for too long: its executor is to return it, unless it runs by now."""
    CANCELLED = "cancelled behind another"
    """Its scheduler cancelled it while it was behind another run: its executor is to return it; if it runs by now, it
    goes on, and its scheduler hears so."""
    CANCELLED_EVEN_IF_IT_RUNS = "cancelled behind another, even if it runs"
    """The same, but if it runs by now it is stopped."""
    PREEMPTED = "preempted behind another"
    """It is to make room while it was behind another run: its executor is to return it; if it runs by now, it is
    stopped."""
    YIELDS = "was asked to yield"
    """It runs, and its executor was asked to have it end within a time, as its lease is over and others come first."""
    PAUSED = "waits without its slot"
    """Its task waits for other tasks, and has given its slot back meanwhile; its executor keeps its place for it."""
    RESUMING = "wants its slot again"
    """Its task has waited, and goes on as soon as it has a slot."""
    STOPPED = "is being stopped"
    """Its executor was told to end it, or is being ended."""
    ENDED = "ended"
    """It was reported, preempted, handed back or withdrawn, and is here no more."""


# Names of their own: to look a member up in its class takes longer than all else that a change of state costs.
PLACED = State.PLACED
WAITS = State.WAITS
GIVEN_AHEAD = State.GIVEN_AHEAD
RUNS = State.RUNS
YIELDS = State.YIELDS
PAUSED = State.PAUSED
RESUMING = State.RESUMING
ASKED_BACK = State.ASKED_BACK
STOPPED = State.STOPPED
ENDED = State.ENDED

# What follows as a rule comes first: it is found fastest.
TRANSITIONS: dict[State, tuple[State, ...]] = {
    # Its executor gets it, behind another run or not; or it has to wait for large data first; or it has a lease, and
    # its executor speaks a version of the protocol that knows none.
    PLACED: (RUNS, GIVEN_AHEAD, WAITS, ENDED),
    # The data come, and it starts. Or they cannot be had, or nobody wants it any more: it was not started.
    WAITS: (RUNS, ENDED),
    # The run before it ends, and it is next. Or it is asked back: for others' sake, or for its scheduler's.
    GIVEN_AHEAD: (RUNS, ASKED_BACK, State.CANCELLED, State.CANCELLED_EVEN_IF_IT_RUNS, State.PREEMPTED, ENDED),
    # Returned; or not, and so it keeps its place; or it is next by now.
    ASKED_BACK: (RUNS, GIVEN_AHEAD, State.CANCELLED, State.CANCELLED_EVEN_IF_IT_RUNS, State.PREEMPTED, ENDED),
    # Returned; or not, and then it runs, though the end of the run before it may be yet to come.
    State.CANCELLED: (RUNS, GIVEN_AHEAD, State.CANCELLED_EVEN_IF_IT_RUNS, STOPPED, ENDED),
    State.CANCELLED_EVEN_IF_IT_RUNS: (STOPPED, ENDED),
    State.PREEMPTED: (STOPPED, ENDED),
    # It ends by itself, or with its executor, or is stopped. Its executor may still return what was asked back before.
    # Or it waits for other tasks.
    RUNS: (ENDED, STOPPED, YIELDS, PAUSED),
    # It wants to go on, or is stopped, or ends with its executor.
    PAUSED: (RESUMING, STOPPED, ENDED),
    # There is a slot, and it goes on.
    RESUMING: (RUNS, STOPPED, ENDED),
    # It ends by itself, or is too late with that, or is stopped for another reason.
    YIELDS: (ENDED, STOPPED),
    STOPPED: (ENDED,),
    ENDED: (),
}
for _state, _after in TRANSITIONS.items():
    _state.may_become = _after


class Lease:
    """How an attempt that has a lease is charged: so much slot time at a time (`leases`)."""

    __slots__ = ("length_s", "settled_s", "since_s")

    def __init__(self, length_s: float, since_s: float) -> None:
        self.length_s = length_s
        self.since_s = since_s
        """When its service was settled last, or when it began."""
        self.settled_s = 0.0
        """What of its service is settled."""


class Pauses:
    """What is known of an attempt that has given its slot back, once at least (`pauses`)."""

    __slots__ = ("had_slot_since_s", "settled_s", "without_slot_s", "without_slot_since_s")

    def __init__(self, began_at_s: float) -> None:
        self.had_slot_since_s = began_at_s
        self.without_slot_since_s: float | None = None
        """Since when it has no slot; None while it has one."""
        self.settled_s = 0.0
        """What of its service is settled."""
        self.without_slot_s = 0.0
        """How long it has had none, up to when it had one again."""


class Attempt:
    """One attempt of a task: at this node from `Starting.enter`, or from a claim, until `AttemptBook.leave`."""

    __slots__ = (
        "ahead", "began_at_s", "charge", "common", "executor_id", "fetches", "given_at_s", "inputs", "job", "lease",
        "missing", "number", "pauses", "payload", "run", "state", "stopped_as", "task",
    )  # fmt: skip

    state: State
    executor_id: str
    run: int
    """What it is called between the node monitor and its executor; both there once it is given to one."""
    given_at_s: float
    """When it got its place, or was sent to its executor."""
    missing: frozenset[str]
    """Hashes of the large data that it waits for; there while it waits."""
    fetches: tuple[int, float]
    """Bytes of large data that were not here when it got its place, and when that was; there once it has waited."""
    stopped_as: tuple[TaskStatus, str] | None
    """How it ends unless it finishes meanwhile, and why; None: it makes room for others. There once it is stopped."""

    def __init__(
        self,
        job: LocalJob,
        task: int,
        number: int,
        payload: Data,
        common: CommonBytes | None,
        inputs: tuple[tuple[int, int], ...],
        charge: Charge,
    ) -> None:
        """number: its id, which is unique in its job."""
        self.state = PLACED
        self.job = job
        self.task = task
        self.number = number
        self.payload = payload
        self.common = common
        self.inputs = inputs
        self.charge = charge
        self.began_at_s: float | None = None
        """Since when its executor works for it, as far as is known; moved by as long as it has had no slot."""
        self.ahead: AheadOfTurn | None = None
        """The book in which it counts as ahead of its turn, while it is behind another run of its executor."""
        self.lease: Lease | None = None
        """There while it runs, if it has one."""
        self.pauses: Pauses | None = None
        """There once it has given its slot back."""

    @property
    def key(self) -> tuple[str, str, int]:
        """(scheduler, job, id)."""
        return self.job.scheduler, self.job.id, self.number

    @property
    def task_timeout_s(self) -> float | None:
        """How long it may run."""
        return None if self.common is None else self.common.task_timeout_s

    @property
    def lease_s(self) -> float | None:
        """How much slot time it is to be charged at a time."""
        return None if self.common is None else self.common.lease_s

    def becomes(self, state: State) -> None:
        """Change the state; `InvariantViolated` if the table forbids that."""
        if state not in self.state.may_become:
            raise self.forbidden(state)
        self.state = state

    def waited_until(self, now_s: float) -> None:
        """It has been without a slot until now, if it was: that is no service."""
        pauses = self.pauses
        if pauses is not None and pauses.without_slot_since_s is not None and self.began_at_s is not None:
            waited_s = max(0.0, now_s - pauses.without_slot_since_s)
            self.began_at_s += waited_s
            pauses.without_slot_s += waited_s
            pauses.had_slot_since_s, pauses.without_slot_since_s = now_s, None

    def begins(self, now_s: float) -> None:
        """The run before it has ended, so that its executor works for it now. One that was cancelled stays so."""
        self.began_at_s = now_s
        self.is_not_behind()
        if self.state is GIVEN_AHEAD or self.state is ASKED_BACK:
            self.state = RUNS

    def is_not_behind(self) -> None:
        """It waits for no other run any more."""
        if self.ahead is not None:
            self.ahead.less()
            self.ahead = None

    def forbidden(self, state: State) -> InvariantViolated:
        """The error that it cannot become this."""
        name = f"attempt {self.number} of task {self.task} of job {self.job.id}"
        return InvariantViolated(f"{name}: {self.state.value!r} cannot become {state.value!r}", self.story())

    def story(self) -> list[str]:
        """Its states so far, if they are remembered."""
        return []

    def problem(self) -> str | None:
        """What of its state does not hold, if anything."""
        behind = self.ahead is not None
        if self.state in (PLACED, ENDED):
            return f"{self.key} is here, and {self.state.value}"
        if self.state is WAITS and (behind or not self.missing or self.began_at_s is not None):
            return f"{self.key} waits for {self.missing}, and should not"
        if self.state is RUNS and (behind or self.began_at_s is None):
            return f"{self.key} runs, and is behind another run"
        without_slot = self.pauses is not None and self.pauses.without_slot_since_s is not None
        if self.state in (PAUSED, RESUMING) and (behind or not without_slot or self.began_at_s is None):
            return f"{self.key} {self.state.value}, and has one, or has not begun"
        if self.state in (RUNS, YIELDS) and without_slot:
            return f"{self.key} {self.state.value} without a slot"
        if self.state is YIELDS and (behind or self.lease is None):
            return f"{self.key} was asked to yield, and has no lease, or is behind another run"
        if self.state in (GIVEN_AHEAD, ASKED_BACK) and not (behind and self.began_at_s is None):
            return f"{self.key} is {self.state.value}, and behind no other run"
        return None


class RememberingAttempt(Attempt):
    """An attempt that remembers its states, for people who look for a bug (`history_len_max`)."""

    __slots__ = ("_states",)

    @property
    def state(self) -> State:  # A slot there, as reading it has to cost nothing.
        """What it is now."""
        return self._states[-1]

    @state.setter
    def state(self, state: State) -> None:
        if state is PLACED:
            self._states = [state]
        else:
            self._states.append(state)

    def story(self) -> list[str]:
        """Its states so far."""
        return [state.value for state in self._states]
