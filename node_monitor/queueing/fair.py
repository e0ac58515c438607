"""Weighted fair sharing of slot-seconds between users: the queue's default policy, its bounds and their proofs (§3.5).

Pure: no clock, no randomness, no I/O. Durations are seconds of slot time (one slot held for one second is one
slot-second).

The algorithm
=============
Start-time fair queueing (Goyal, Vin, Cheng 1996) for as many servers as there are slots, fair in slot-seconds. Of each
user k there are two numbers, each divided by its weight w_k: T_k, its true service, that is what tasks that have ended
took; and P_k, what is pending, that is the estimates for tasks that have not. The node has a virtual time V.

- take: of the users that have a ticket that may run, the one with the least tag T_k + P_k is served. Ties go to the one
  with fewer charges outstanding over weight, then to the one that has been backlogged for longer. V becomes
  max(V, T_k): estimates are never in it. Then P_k rises by the estimate.
- The estimate is what the ticket states, else the recent mean of the user's tasks here; but no more than the longest of
  them, and `TURN_S` if there are none. What is not believed costs nobody, its user included; what is too low is made up
  for when the task ends.
- settle: the task held a slot for a seconds: P_k falls by its estimate, T_k rises by a/w_k. refund: P_k falls. Both use
  the weight of the charge, whatever the user's weight is by now. So T_k never falls.
- lift: a user that becomes backlogged starts from T_k = max(T_k, V - P_k), so it has saved nothing up while idle, and
  still owes what it owed. The same happens to a user that a take passed over because none of its tickets may run:
  credit earned while unable to run would starve the others later. Tasks that were running at the lift count towards
  it when they end (`slack`), else the time that they had run by then would be charged twice.
- V stands still when nobody is queued; it needs no running task to define it. A user is forgotten when it has nothing
  queued, no charge outstanding and T_k <= V: as a new user it would start at the same tag. When nobody has anything
  queued or outstanding, everything is forgotten.

The bounds
==========
A charge is outstanding from take until settle or refund. Let c be the number of slots, each of which has one charge
outstanding at most; or several short ones that were given to it at a time, which come to `TURN_S` and count as one
here. Let L_k be the longest of the tasks that k has had in the busy period, and at least `TURN_S`, and l_k = L_k/w_k.
No estimate is in this, nothing that anybody states, and nothing that was fetched ahead of its turn, as that is not
charged. P_k <= c l_k, since no estimate is above L_k; and what is outstanding of k comes to c l_k at most when it ends.

(A) Let users i and j both be backlogged, with a ticket that may run, throughout [t1, t2], and S_k be the service over
weight that k's tasks get in [t1, t2]. Then, however long the interval, whoever else comes and goes,

    |S_i - S_j|  <=  c (l_i + l_j) + 2 c max(l_i, l_j)  <=  4 c max(l_i, l_j).

Proof. (1) T_k >= V - c l_k while k is backlogged. Let q be the last take that raised V. If k was lifted at q or later,
it was to V - P_k at least. Else k could run at q and was not before the chosen one in order, so T_k + P_k >= V just
after q. T_k has not fallen since, and P_k <= c l_k then.
(2) T_k <= V + c l_k. At k's last charge T_k <= V, as V was raised to it; and a lift sets it to V at most. Since then it
rose only by what was outstanding, and V never falls.
(3) So |T_i - T_j| <= c (l_i + l_j) at t1.
(4) Call charges outstanding at t1 old, those made in (t1, t2] new. Let s be the last new charge of i; if there is none,
S_i <= c l_i and we are done. Just before s, T_i + P_i <= T_j + P_j, else j would have been chosen. No lift falls within
(t1, s]. From t1 to s T_i rises by N_i, what its new charges that end by s take, at least; T_j by N_j and what its old
ones take, at most. Besides N_i, tasks of i get l_i at most for each old charge and for each that is outstanding just
after s; tasks of j get N_j at least. Hence
    S_i - S_j <= (T_j - T_i)(t1) + (P_j - P_i)(s) + [old charges of either: c max(l_i, l_j)]
                 + [l_i for each of i's outstanding just after s],
where P_j(s) is at most l_j for each of j's outstanding at s, so that it and the last term come to c max(l_i, l_j). With
(3), and with i and j exchanged, that is the bound. QED

(B) A newcomer beside one backlogged user, who was served alone since V reached its T, gets the next slot that frees: it
waits for one task that runs. Proof. It starts at T = V, with P = 0 and no charge. Of the other one T >= V; and where
that is an equality and P = 0, it has a charge outstanding, or there is a free slot. QED

(C) A newcomer beside n backlogged users. Before it is served, those get at most (c + c m + n) max(l_k w_k) slot-seconds
of tasks charged after it came, m being the number of those behind V, at most min(c, n). Proof. V stands still till
then, as a user with T_k > V comes after the newcomer. One with T_k = V is served once at most: then it has a charge
outstanding, which the newcomer has not. One with T_k < V had a charge outstanding when V was last raised, by (1), and
is behind by no more than those charges' estimates: in all at most c of them, c max(l_k w_k). It is served until it has
made up for that, and what it has outstanding then is c l_k at most. QED

Leases
======
A task of a stage with `lease_s` is charged one lease at a time (`leases`). Its charge begins with an estimate, as it
is not known when it is taken that it has a lease; when the task starts the lease takes the estimate's place
(`lease`). When the lease is over, what the task has held is added to T_k (`settle_lease`); the estimate stays in P_k,
for what is to come. Then, if no user comes before k in order, were k's next lease taken now, of those who have a
ticket that waits for this slot and nothing else, the charge is renewed as if it were taken: V becomes max(V, T_k)
(`renew`). Else the task holds its slot beyond the lease, until it has yielded, been killed, or been renewed after
all. None of this is in the mean of the user's tasks, nor in the longest of them that bounds estimates: a user's short
tasks are charged as if it had no others.

In the bounds such a task counts as many, one for each lease, with what it held beyond. So L_k is the larger of k's
longest task and lease + grace, where lease is k's longest and grace the longest time that a task of k held its slot
beyond one. That is `yield_within_s` for a task that is asked at once. One task of a node is asked at a time, so where
the leases of several are over together and each uses up its time, the last is asked after the others: then grace is
`yield_within_s` for each of them, c of them at most. (To kill takes some milliseconds more, for an executor of several
places `KILL_GRACE_S`; that is grace, too.)

(A) then holds with the same proof. (1) A renewal raises V to T_k when T_k + P_k, without the charge, is no more than
T_j + P_j for all others that may run; so is V. (2) At k's last charge or renewal T_k <= V, and since then it rose only
by what was outstanding, parts that were settled included, which for each slot is L_k at most. (4) A renewal is an end
and a take of i at which j did not come first. Where T_j has risen by parts of new charges that have not ended by s, the
tasks of j got as much. (B) A newcomer beside one user gets a slot when the next task ends or the next lease is over,
within grace: its tag is V, and k's is above V by the lease that was just settled. (C) stands, with leases in place of
tasks. A lease is bounded by the operator (`lease_s_max`): it is the only thing in these bounds that a user states, and
it is that user's l_k alone.

Tasks that wait
===============
A task that waits for tasks of its own gives its slot back (`paused_tasks`). What it has held is added to T_k then, as
at the end of a lease, and nothing of it is pending; its charge stays open, as it is one of k's tasks here. Once it
wants a slot again k counts as backlogged, by a task that may run: it is lifted then if it was not, so that it saves
nothing up while its tasks wait (`wants_again`). The task goes on before all that k has queued, and before what others
have queued if no user comes before k in order, of those who have a ticket that may run (`comes_first`); or if nobody
has any. That is as a take of k's, and as a renewal: V becomes max(V, T_k), and `TURN_S` is pending (`go_on`). So (A),
(B) and (C) stand, where L_k is also at least what one of k's tasks takes between two waits. None of that is in the mean
of the user's tasks, nor in the longest of them, which bound estimates alone.

Tags are whole numbers (`_TICKS_PER_S`), so a refund restores a tag exactly and a node that is busy for a year is as
exact as on its first day. The rounding, at most one tick a charge, is left out above.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import (
    CHARGE_S_MAX,
    MAX_DURATION_S,
    TURN_S,
    Charge,
    QueuedTicket,
    Tickets,
    check_duration,
    with_depths,
)

LEAST_CHARGE_S = 1e-5
"""Least charge for a task (seconds): one that takes no time takes its turn all the same."""

MAX_DEBTORS = 1024
"""Idle users whose debt a level remembers; beyond it the smallest debts are forgiven. V can stand still while new users
keep coming (each starts at V), so without a limit their number would have none."""

_TICKS_PER_S = 1e15
"""Ticks of virtual time to a slot-second at weight 1: at the greatest weight a millisecond still is a million ticks."""

_EWMA_GAIN = 0.25
"""Share of the newest task in a user's mean duration: about the last eight tasks count."""

_HEAP_SLACK = 64
"""Superseded heap entries tolerated beyond the number of live ones before a heap is rebuilt."""


class FairQueue(ReservationQueue):
    """Weighted fair sharing of slot-seconds between users (§3.5). The algorithm, its bounds and their proofs are at the
    top of this file.

    slots: servers of the node. The algorithm is the same for any number; the bounds grow with it.
    charge_s_max: the most that an estimate is charged, in seconds.
    """

    def __init__(self, slots: int, charge_s_max: float = CHARGE_S_MAX) -> None:
        super().__init__()
        if slots < 1:
            raise ValueError(f"slots must be at least 1, not {slots}")
        if not 0.0 < charge_s_max <= MAX_DURATION_S:
            raise ValueError(f"charge_s_max must be above 0 and at most {MAX_DURATION_S} seconds, not {charge_s_max}")
        self.slots = slots
        self.charge_s_max = charge_s_max
        self._level = Level(0, charge_s_max)
        self._ranked = [self._level]  # levels, highest priority first

    def _levels(self) -> list[Level]:
        return self._ranked

    @property
    def flow_count(self) -> int:
        """Users of whom something is remembered, once for each priority: those with reservations queued, with charges
        outstanding, or in debt."""
        return sum(len(level.flows) for level in self._levels())

    def take(
        self, may_run: Callable[[QueuedTicket], bool], wanted: Callable[[QueuedTicket], bool] | None = None
    ) -> Charge | None:
        for level in self._ranked:
            passed: list[_Flow] = []
            charge = None
            try:
                ticket = level.first(may_run, passed)
                if ticket is not None:
                    if wanted is None or wanted(ticket):
                        charge = self._charge(level, ticket)
                    return charge
            finally:
                if passed:
                    level.pass_over(passed, preferred=charge is not None)
        return None

    def take_of(self, ticket: QueuedTicket) -> Charge:
        return self._charge(self._level_of(ticket), ticket)

    def _charge(self, level: Level, ticket: QueuedTicket) -> Charge:
        charge = level.charge(ticket)
        self.size -= 1  # As `_spend` does, at every task.
        users, user = self._users, ticket.user
        left = users[user] - 1
        if left:
            users[user] = left
        else:
            del users[user]
        if not ticket.count:
            self._unindex(ticket.key)
        return charge

    def refund(self, charge: Charge) -> None:
        mine: FairCharge = charge.close()
        mine.flow.level.end(mine, 0)

    def settle(self, charge: Charge, service_s: float) -> None:
        if not 0.0 <= service_s <= MAX_DURATION_S:  # At every task, which is why it is looked at here.
            check_duration("service_s", service_s)
        mine: FairCharge = charge.close()
        flow = mine.flow
        if flow.known:
            flow.mean_s += _EWMA_GAIN * (service_s - flow.mean_s)
        else:
            flow.mean_s, flow.known = service_s, True
        if service_s > flow.longest_s:  # noqa: PLR1730 - at every task, where max() costs more than all else here
            flow.longest_s = service_s
        cost_s = service_s if service_s > LEAST_CHARGE_S else LEAST_CHARGE_S
        flow.level.end(mine, int(cost_s * mine.rate))

    # ---- leases ------------------------------------------------------------------------------

    def lease(self, charge: Charge, lease_s: float) -> None:
        mine: FairCharge = charge  # type: ignore[assignment]
        mine.flow.level.recharge(mine, lease_s)

    def settle_lease(self, charge: Charge, held_s: float) -> None:
        check_duration("held_s", held_s)
        mine: FairCharge = charge  # type: ignore[assignment]
        mine.flow.level.settle_part(mine, int(held_s * mine.rate))

    def renew(self, charge: Charge, waits: Callable[[QueuedTicket], bool]) -> bool:
        mine: FairCharge = charge  # type: ignore[assignment]
        own = mine.flow.level
        for level in self._ranked:  # Those of a higher priority, and then the charge's own.
            passed: list[_Flow] = []
            renewed = False
            try:
                ticket = level.first(waits, passed)
                if ticket is not None and (level is not own or level.comes_before(ticket.user, mine)):
                    return False
                if level is own:
                    own.renew(mine)
                    renewed = True
                    return True
            finally:
                if passed:
                    level.pass_over(passed, preferred=renewed)
        raise AssertionError(f"priority {own.priority} has a charge outstanding and is not ranked")

    def comes_before(self, ticket: QueuedTicket, charge: Charge) -> bool:
        mine: FairCharge = charge  # type: ignore[assignment]
        level, own = self._level_of(ticket), mine.flow.level
        if level is not own:
            return level.priority > own.priority
        other = level.flows[ticket.user]
        return other is not mine.flow and other.position() < mine.flow.position()

    # ---- tasks that wait ---------------------------------------------------------------------

    def wants_again(self, charge: Charge) -> None:
        mine: FairCharge = charge  # type: ignore[assignment]
        mine.flow.level.wants_again(mine)

    def comes_first(self, charge: Charge, may_run: Callable[[QueuedTicket], bool]) -> bool:
        mine: FairCharge = charge  # type: ignore[assignment]
        own = mine.flow.level
        for level in self._ranked:  # Those of a higher priority, and then the charge's own.
            passed: list[_Flow] = []
            try:
                ticket = level.first(may_run, passed)
                if ticket is not None and (level is not own or level.comes_before(ticket.user, mine)):
                    return False
                if level is own:
                    return True
            finally:
                level.pass_over(passed, preferred=False)
        raise AssertionError(f"priority {own.priority} has a charge outstanding and is not ranked")

    def precedes(self, charge: Charge, other: Charge) -> bool:
        one: FairCharge = charge  # type: ignore[assignment]
        two: FairCharge = other  # type: ignore[assignment]
        if one.flow.level is not two.flow.level:
            return one.flow.level.priority > two.flow.level.priority
        return one.flow is not two.flow and one.place() < two.place()

    def go_on(self, charge: Charge) -> None:
        mine: FairCharge = charge  # type: ignore[assignment]
        mine.flow.level.go_on(mine)

    def end_lease(self, charge: Charge, held_s: float) -> None:
        check_duration("held_s", held_s)
        mine: FairCharge = charge.close()
        mine.flow.level.end(mine, int(max(held_s, LEAST_CHARGE_S) * mine.rate))

    def check_invariants(self) -> None:
        super().check_invariants()
        queued = 0
        for level in self._levels():
            level.check_invariants()
            for flow in level.flows.values():
                for key, ticket in flow.tickets.items():
                    assert self.ticket(key) is ticket, f"{ticket} has a place but is not indexed"
                    assert ticket.user == flow.user, f"{ticket} is queued for {flow.user}"
                    assert self._level_of(ticket) is level, f"{ticket} is queued at priority {level.priority}"
                queued += len(flow.tickets)
        assert queued == sum(1 for _ in self.tickets()), "a ticket is indexed but has no place"

    def _level_of(self, ticket: QueuedTicket) -> Level:
        """Where the ticket is queued."""
        return self._level

    def _enqueue(self, ticket: QueuedTicket) -> None:
        self._level.enqueue(ticket)

    def _dequeue(self, ticket: QueuedTicket) -> None:
        self._level_of(ticket).dequeue(ticket)

    def _reweigh(self, ticket: QueuedTicket) -> None:
        self._level_of(ticket).reweigh(ticket)


class FairCharge(Charge):
    """A charge, and what it put on its user's tag."""

    __slots__ = ("cost", "flow", "lifts", "rate")

    def __init__(self, ticket: QueuedTicket, estimate_s: float, flow: _Flow, cost: int) -> None:
        self.ticket = ticket  # Not by the parent's __init__: this is for every task.
        self.estimate_s = estimate_s
        self._open = True
        self.flow = flow
        self.cost = cost  # ticks charged
        self.rate = flow.rate  # the weight may change before the end
        self.lifts = flow.lifts

    def place(self) -> tuple[int, float]:
        """Its user's place in order, were it to be charged now."""
        flow = self.flow
        return flow.true + flow.pending - self.cost, (flow.outstanding - 1) * flow.rate


class _Flow:
    """One user at one priority level."""

    __slots__ = (
        "entry", "known", "level", "lifts", "longest_s", "mean_s", "order", "outstanding", "pending", "rate", "slack",
        "tickets", "true", "user",
    )  # fmt: skip

    def __init__(self, user: str, level: Level) -> None:
        self.user = user
        self.level = level
        self.tickets: Tickets = OrderedDict()  # deepest first, by arrival; any = backlogged
        self.outstanding = 0  # charges not closed yet
        self.rate = 0.0  # ticks to a slot-second: _TICKS_PER_S / weight
        self.known = False  # whether a task of it has ended here
        self.mean_s = TURN_S  # EWMA of the durations of its tasks here, seconds
        self.longest_s = TURN_S  # the longest of them
        self.true = level.virtual  # T, ticks
        self.pending = 0  # P, ticks: the estimates of its open charges
        self.slack = 0  # What of the last lift has not been found to be service of charges older than it, ticks.
        self.lifts = 0
        self.order = 0  # rank by when it became backlogged, settles ties
        self.entry: _Entry | None = None  # its live entry in level.heap (backlogged) or level.debts (idle, in debt)

    def position(self) -> tuple[int, float]:
        """Its place in order: the tag, then the charges outstanding over weight."""
        return self.true + self.pending, self.outstanding * self.rate

    def beyond_lift(self, service: int) -> int:
        """What of this service, of a charge that ran already when the flow was lifted, the lift has not counted."""
        known = min(self.slack, service)
        self.slack -= known
        return service - known


_Entry = tuple[int, float, int, _Flow]  # position when pushed, order, flow; two that are equal are of the same flow


class Level:
    """The users of one priority, their tags and their virtual time.

    `heap` has a live entry for each backlogged user, at or below its position: one that fell gets a new entry, one that
    rose is put right when its entry comes up. An entry that is not its flow's `entry` is dead: it goes once on top.
    """

    __slots__ = ("_arrivals", "_charge_s_max", "active", "debtors", "debts", "flows", "heap", "priority", "virtual")

    def __init__(self, priority: int, charge_s_max: float) -> None:
        self.priority = priority
        self._charge_s_max = charge_s_max
        self.virtual = 0  # V, ticks
        self.flows: dict[str, _Flow] = {}
        self.active = 0  # flows with anything queued or outstanding
        self.heap: list[_Entry] = []
        self.debts: list[_Entry] = []  # idle users by tag, until V reaches it
        self.debtors = 0  # live entries of `debts`
        self._arrivals = 0

    def enqueue(self, ticket: QueuedTicket) -> None:
        flow = self.flows.get(ticket.user)
        if flow is None:
            flow = self.flows[ticket.user] = _Flow(ticket.user, self)
            self.active += 1
        elif not flow.tickets and not flow.outstanding:
            self.active += 1
            if flow.entry is not None:
                self.debtors -= 1
        if flow.tickets:
            self.reweigh(ticket)
        else:  # It is backlogged from now on.
            flow.rate = _TICKS_PER_S / ticket.weight
            self._lift(flow)
            self._arrivals += 1
            flow.order = self._arrivals
            self._push(flow)
        if ticket.depth:
            flow.tickets = with_depths(flow.tickets)
        flow.tickets[ticket.key] = ticket

    def reweigh(self, ticket: QueuedTicket) -> None:
        """The ticket's user, who is backlogged, has the ticket's weight from now on."""
        flow = self.flows[ticket.user]
        flow.rate = _TICKS_PER_S / ticket.weight
        self._fell(flow)

    def dequeue(self, ticket: QueuedTicket) -> None:
        flow = self.flows[ticket.user]
        del flow.tickets[ticket.key]
        if not flow.tickets:
            flow.entry = None
            if not flow.outstanding:
                self._rest(flow)

    def first(self, may_run: Callable[[QueuedTicket], bool], passed: list[_Flow]) -> QueuedTicket | None:
        """The first ticket in order that may run; flows that were passed over are not in the heap any more."""
        heap = self.heap
        while heap:
            entry = heap[0]
            flow = entry[3]
            if flow.entry is not entry:
                heappop(heap)
                continue
            if len(heap) > 1:  # Where one user is alone its place does not matter, and may stay below its position.
                tag, load = flow.true + flow.pending, flow.outstanding * flow.rate
                if tag > entry[0] or load > entry[1]:
                    flow.entry = entry = (tag, load, flow.order, flow)
                    heapreplace(heap, entry)
                    continue
            for ticket in flow.tickets.values():
                if may_run(ticket):
                    return ticket
            heappop(heap)
            passed.append(flow)
        return None

    def pass_over(self, passed: list[_Flow], *, preferred: bool) -> None:
        """These flows have nothing that may run. If another was preferred to them, they save nothing up by that."""
        for flow in passed:
            if preferred:
                self._lift(flow)
            self._push(flow)

    def charge(self, ticket: QueuedTicket) -> FairCharge:
        """Serve the ticket's flow: its entry in the heap may be below its position from now on."""
        flow = self.flows[ticket.user]
        if flow.true > self.virtual:
            self.virtual = flow.true
            debts = self.debts
            while debts and debts[0][0] <= flow.true:
                self._forgive()
        estimate_s = ticket.expected_duration_s
        if estimate_s is None:
            estimate_s = flow.mean_s
        most_s = flow.longest_s if flow.longest_s < self._charge_s_max else self._charge_s_max
        if estimate_s > most_s:  # noqa: PLR1730
            estimate_s = most_s
        cost = int((estimate_s if estimate_s > LEAST_CHARGE_S else LEAST_CHARGE_S) * flow.rate)
        flow.pending += cost
        flow.outstanding += 1
        ticket.count -= 1
        if not ticket.count:
            del flow.tickets[ticket.key]
            if not flow.tickets:
                flow.entry = None
        return FairCharge(ticket, estimate_s, flow, cost)

    def end(self, charge: FairCharge, service: int) -> None:
        """The charge ends: it was worth `service` ticks."""
        flow = charge.flow
        flow.pending -= charge.cost
        flow.outstanding -= 1
        if charge.lifts != flow.lifts:
            service = flow.beyond_lift(service)
        flow.true += service
        if flow.tickets:
            entry = flow.entry
            if entry is None or flow.true + flow.pending <= entry[0]:  # Else it is behind its entry, as it may be.
                self._fell(flow)
        elif not flow.outstanding:
            self._rest(flow)

    def recharge(self, charge: FairCharge, estimate_s: float) -> None:
        """The charge's estimate is this."""
        flow = charge.flow
        cost = int((estimate_s if estimate_s > LEAST_CHARGE_S else LEAST_CHARGE_S) * charge.rate)
        flow.pending += cost - charge.cost
        charge.cost, charge.estimate_s = cost, estimate_s
        if flow.tickets:
            self._fell(flow)

    def settle_part(self, charge: FairCharge, service: int) -> None:
        """Of the charge so many ticks are service by now; its estimate is for what is yet to come."""
        flow = charge.flow
        flow.true += flow.beyond_lift(service) if charge.lifts != flow.lifts else service
        charge.lifts = flow.lifts

    def comes_before(self, user: str, charge: FairCharge) -> bool:
        """Whether it is the user's turn, who has something queued, rather than that of the charge's, were it to be
        charged now."""
        other = self.flows[user]
        return other is not charge.flow and other.position() < charge.place()

    def wants_again(self, charge: FairCharge) -> None:
        """The charge's user is backlogged from now on, if it was not: by a task that wants a slot again."""
        if not charge.flow.tickets:
            self._lift(charge.flow)

    def go_on(self, charge: FairCharge) -> None:
        """The charge's task has a slot again, as if it were taken now. No lift has counted what it takes now."""
        charge.lifts, charge.estimate_s = charge.flow.lifts, TURN_S
        self.renew(charge)

    def renew(self, charge: FairCharge) -> None:
        """Charge the same again, at the user's present weight, as if it were taken now."""
        flow = charge.flow
        if flow.true > self.virtual:
            self.virtual = flow.true
            while self.debts and self.debts[0][0] <= flow.true:
                self._forgive()
        charge.rate = flow.rate
        self.recharge(charge, charge.estimate_s)

    def _lift(self, flow: _Flow) -> None:
        """Start the flow no earlier than now: it is behind V by no more than what it has outstanding."""
        floor = self.virtual - flow.pending
        if flow.true < floor:
            flow.lifts += 1
            flow.slack = floor - flow.true
            flow.true = floor

    def _push(self, flow: _Flow) -> None:
        # `position`, in place: for every reservation of a user who has none.
        flow.entry = entry = (flow.true + flow.pending, flow.outstanding * flow.rate, flow.order, flow)
        heap = self.heap
        heappush(heap, entry)
        if len(heap) > _HEAP_SLACK:
            self._trim(heap)

    def _fell(self, flow: _Flow) -> None:
        """The flow, which is backlogged, may have come forward."""
        entry, tag = flow.entry, flow.true + flow.pending
        if entry is not None and tag <= entry[0] and (tag < entry[0] or flow.outstanding * flow.rate < entry[1]):
            self._push(flow)

    def _forget(self, flow: _Flow) -> None:
        flow.entry = None
        del self.flows[flow.user]
        self._trim(self.heap)

    def _reset(self) -> None:
        """A busy period ended: nobody owes anybody anything, all tags and V go."""
        for flow in self.flows.values():
            flow.entry = None  # Which refers to its flow: so it goes without the garbage collector.
        self.flows.clear()
        self.heap.clear()
        self.debts.clear()
        self.debtors = self.virtual = 0

    def _rest(self, flow: _Flow) -> None:
        """The flow has nothing queued and nothing outstanding any more: forget it, or remember its debt."""
        self.active -= 1
        if not self.active:
            self._reset()
            return
        if flow.true <= self.virtual:
            self._forget(flow)
            return
        flow.entry = entry = (flow.true, 0.0, flow.order, flow)
        heappush(self.debts, entry)
        self.debtors += 1
        while self.debtors > MAX_DEBTORS:
            self._forgive()
        self._trim(self.debts)

    def _forgive(self) -> None:
        """Drop the first entry of `debts`, and if it is live the user with it."""
        entry = heappop(self.debts)
        flow = entry[3]
        if flow.entry is entry:
            self._forget(flow)
            self.debtors -= 1

    def _trim(self, heap: list[_Entry]) -> None:
        """Rebuild a heap once most of it is dead: constant time, amortised. Its first live entry stays the first."""
        if len(heap) > 2 * len(self.flows) + _HEAP_SLACK:
            heap[:] = [entry for entry in heap if entry[3].entry is entry]
            heapify(heap)

    def check_invariants(self) -> None:
        active = debtors = 0
        live = {id(entry) for entry in self.heap}
        owed = {id(entry) for entry in self.debts}
        for user, flow in self.flows.items():
            assert (flow.user, flow.level) == (user, self), f"{user} is filed wrongly"
            assert flow.outstanding >= 0, f"{user} has {flow.outstanding} charges outstanding"
            assert flow.true >= 0, f"{user} has a negative tag {flow.true}"
            assert flow.pending >= 0, f"{user} has {flow.pending} pending"
            assert flow.outstanding or not flow.pending, f"{user} has {flow.pending} pending for no charge"
            if flow.tickets or flow.outstanding:
                active += 1
            if flow.tickets:
                assert flow.entry is not None, f"{user} is backlogged but has no entry"
                assert id(flow.entry) in live, f"{user} is backlogged but cannot be picked"
                position = flow.position()
                assert flow.entry[:2] <= position, f"{user} is filed at {flow.entry[:2]}, after its {position}"
            elif flow.outstanding:
                assert flow.entry is None, f"{user} has nothing queued but is filed"
            else:
                assert id(flow.entry) in owed, f"{user} is idle but remembered"
                assert flow.true > self.virtual, f"{user} owes nothing but is remembered"
                debtors += 1
        assert active == self.active, f"active users: counted {active}, kept {self.active}"
        assert active or not (self.flows or self.heap or self.debts or self.virtual), "nobody is here, but remembered"
        assert debtors == self.debtors <= MAX_DEBTORS, f"users in debt: counted {debtors}, kept {self.debtors}"
        for heap in (self.heap, self.debts):
            for i in range(1, len(heap)):
                assert heap[(i - 1) // 2][:3] <= heap[i][:3], "a heap is out of order"
