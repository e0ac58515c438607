"""Whose turn it is: weighted fair sharing of slot-seconds between the users of one scheduler.

The algorithm is that of a node's queue, whose bounds and proofs are at the top of `node_monitor/queueing/fair.py`; the
servers are the slots of all nodes here. Of each user there are T, what its ended tasks took over its weight, and P, the
estimates for those that have not ended. The user with the least T + P is served; V is the greatest T of those served.
A user that has not waited, or whose tasks no free slot may run, starts from V - P at least, and so saves nothing up.

Pure: no clock, no chance, no I/O. Times are seconds of one slot.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

TURN_S = 0.002
"""What a user's tasks are taken to last at least, before one has ended."""
LEAST_CHARGE_S = 1e-5
"""A task that takes no time takes its turn all the same."""
SERVICE_S_MAX = 1e9
"""A node that says that a task took longer, or less than nothing, is not believed."""
DEBTORS_MAX = 1024
"""Users without tasks whose debt is remembered; beyond it the smallest are forgiven."""
_EWMA_GAIN = 0.25
"""Share of the newest task in a user's mean duration."""
_HEAP_SLACK = 64
"""Superseded entries tolerated beyond the number of live ones."""

_Entry = tuple[float, float, int, "Share"]
"""Tag, charges outstanding over weight, number, user."""


class Share:
    """One user's part."""

    __slots__ = (
        "entry", "known", "lifts", "longest_s", "mean_s", "order", "outstanding", "pending", "slack", "true", "user",
        "waits", "weight",
    )  # fmt: skip

    def __init__(self, user: str, weight: float, virtual: float) -> None:
        self.user = user
        self.weight = weight
        self.waits = False
        """Whether it has tasks that wait for a slot."""
        self.true = virtual
        self.pending = 0.0
        self.outstanding = 0
        """Charges that have not ended."""
        self.known = False
        """Whether a task of it has ended."""
        self.mean_s = TURN_S
        self.longest_s = TURN_S
        self.slack = 0.0
        """What of the last lift has not been found to be service of charges older than it."""
        self.lifts = 0
        self.order = 0
        """By when it began to wait; settles ties."""
        self.entry: _Entry | None = None
        """Its live entry in the heap, at or below its place."""

    def place(self) -> tuple[float, float]:
        """The least goes first."""
        return self.true + self.pending, self.outstanding / self.weight


class Charge:
    """A task that was started, and what it put on its user's tag."""

    __slots__ = ("cost", "estimate_s", "lifts", "share")

    def __init__(self, share: Share, estimate_s: float) -> None:
        self.share = share
        self.estimate_s = estimate_s
        self.cost = max(estimate_s, LEAST_CHARGE_S) / share.weight
        self.lifts = share.lifts


class Shares:
    """All users that have tasks here, or owe for tasks that they had."""

    def __init__(self) -> None:
        self.virtual = 0.0
        self._shares: dict[str, Share] = {}
        self._heap: list[_Entry] = []
        self._passed: list[tuple[Share, int]] = []
        """Users that were passed over in this round, and how many charges there had been."""
        self._charges = 0
        self._arrivals = 0
        self._active = 0
        """Users that wait or have charges outstanding."""

    # ---- who waits ---------------------------------------------------------------------------

    def waits(self, user: str, weight: float) -> None:
        """The user has tasks that wait for slots."""
        share = self._shares.get(user)
        if share is None:
            share = self._shares[user] = Share(user, weight, self.virtual)
        if share.waits:
            return
        if not share.outstanding:
            self._active += 1
        share.waits = True
        self._lift(share)
        self._arrivals += 1
        share.order = self._arrivals
        self._push(share)

    def waits_no_more(self, user: str) -> None:
        """None of the user's tasks waits."""
        share = self._shares[user]
        share.waits, share.entry = False, None
        if not share.outstanding:
            self._rest(share)

    # ---- a round: slots are free -------------------------------------------------------------

    def first(self) -> str | None:
        """Whose turn it is, of those that wait and were not passed over in this round."""
        heap = self._heap
        while heap:
            entry = heap[0]
            share = entry[3]
            if share.entry is not entry:
                heappop(heap)
                continue
            tag, load = share.place()
            if tag > entry[0] or load > entry[1]:
                share.entry = entry = (tag, load, share.order, share)
                heapreplace(heap, entry)
                continue
            return share.user
        return None

    def pass_over(self, user: str) -> None:
        """No free slot may run tasks of the user, whose turn it was."""
        share = self._shares[user]
        share.entry = None
        heappop(self._heap)
        self._passed.append((share, self._charges))

    def end_round(self) -> None:
        """Those that were passed over wait again. If others were served meanwhile, they save nothing up by that."""
        for share, charges in self._passed:
            if share.waits and share.entry is None:
                if self._charges > charges:
                    self._lift(share)
                self._push(share)
        self._passed.clear()

    # ---- what was started --------------------------------------------------------------------

    def charge(self, user: str, expected_s: float | None) -> Charge:
        """A task of the user is started. It may say how long it lasts, and is believed if the user had such tasks."""
        share = self._shares[user]
        self._charges += 1
        self.virtual = max(self.virtual, share.true)
        charge = Charge(share, min(share.mean_s if expected_s is None else expected_s, share.longest_s))
        if not share.waits and not share.outstanding:
            self._active += 1
        share.pending += charge.cost
        share.outstanding += 1
        return charge

    def settle(self, charge: Charge, service_s: float | None) -> None:
        """The task has ended and took so long; None: nobody knows, so what was estimated counts."""
        share = charge.share
        if service_s is None or not 0.0 <= service_s <= SERVICE_S_MAX:
            service_s = charge.estimate_s
        else:
            share.mean_s = share.mean_s + _EWMA_GAIN * (service_s - share.mean_s) if share.known else service_s
            share.known = True
            share.longest_s = max(share.longest_s, service_s)
        self._end(charge, max(service_s, LEAST_CHARGE_S) / share.weight)

    def refund(self, charge: Charge) -> None:
        """The task was not started after all."""
        self._end(charge, 0.0)

    def _end(self, charge: Charge, service: float) -> None:
        share = charge.share
        share.outstanding -= 1
        share.pending = share.pending - charge.cost if share.outstanding else 0.0  # Of many sums something may be left.
        if charge.lifts != share.lifts:  # It ran already when its user was lifted.
            known = min(share.slack, service)
            share.slack -= known
            service -= known
        share.true += service
        if not share.waits:
            if not share.outstanding:
                self._rest(share)
        elif share.entry is not None and share.place() < share.entry[:2]:
            self._push(share)

    # ---- tags --------------------------------------------------------------------------------

    def _lift(self, share: Share) -> None:
        floor = self.virtual - share.pending
        if share.true < floor:
            share.lifts += 1
            share.slack = floor - share.true
            share.true = floor

    def _push(self, share: Share) -> None:
        share.entry = entry = (*share.place(), share.order, share)
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._shares) + _HEAP_SLACK:
            self._heap = [entry for entry in self._heap if entry[3].entry is entry]
            heapify(self._heap)

    def _rest(self, share: Share) -> None:
        """The user has nothing here any more: forget it, or remember its debt."""
        self._active -= 1
        if not self._active:  # Nobody owes anybody anything.
            for one in self._shares.values():
                one.entry = None  # Which refers to its user: so it goes without the garbage collector.
            self._shares.clear()
            self._heap.clear()
            self._passed.clear()
            self.virtual = 0.0
        elif share.true <= self.virtual:
            del self._shares[share.user]
        elif len(self._shares) - self._active > 2 * DEBTORS_MAX:
            self._forgive()

    def _forgive(self) -> None:
        debtors = [one for one in self._shares.values() if not one.waits and not one.outstanding]
        debtors.sort(key=lambda one: (one.true, one.user))
        for one in debtors[:-DEBTORS_MAX]:
            del self._shares[one.user]

    # ---- invariants --------------------------------------------------------------------------

    def problem(self, waiting: set[str]) -> str | None:
        """What is wrong with these books, with these users' tasks waiting; between rounds."""
        known = {user for user, share in self._shares.items() if share.waits}
        if known != waiting:
            return f"users {sorted(waiting)} wait, known as {sorted(known)}"
        live = {id(entry) for entry in self._heap}
        active = 0
        for share in self._shares.values():
            active += share.waits or share.outstanding > 0
            if share.waits != (share.entry is not None) or (share.waits and id(share.entry) not in live):
                return f"user {share.user} waits: {share.waits}, and its entry is {share.entry}"
            if share.waits and share.entry is not None and share.entry[:2] > share.place():
                return f"user {share.user} is filed at {share.entry[:2]}, after its {share.place()}"
            if share.outstanding < 0 or (not share.outstanding and share.pending):
                return f"user {share.user} has {share.pending} pending for {share.outstanding} charges"
        if active != self._active or self._passed:
            return f"{active} users are active, counted as {self._active}; passed over {self._passed}"
        return None
