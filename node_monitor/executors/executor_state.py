"""What the node monitor's core knows of apps and their executors."""

from __future__ import annotations

from dataclasses import dataclass

from node_monitor.attempts import Attempt
from node_monitor.executors.offers import Offer
from node_monitor.executors.suspicion import Suspicion
from node_monitor.host.accounts import OWN, UserAccounts


@dataclass(frozen=True, slots=True)
class AppPlan:
    """An app that this node runs, and how, as one account.

    app: its name. account: as which account of the machine its executors run, by name.
    runtime: what its executors run, for comparison with what a job asks for.
    one_process: one process with a place per slot; otherwise a process with one place per slot.
    supervised: whether the node monitor starts the processes itself.
    awaited: whether schedulers hear of the app only once an executor has come, as nobody here starts one.
    forks: whether a process more costs next to nothing, in time and memory, as it is forked.
    gives_attributes: whether its executors may give the node attributes.
    """

    app: str
    runtime: str = ""
    one_process: bool = False
    supervised: bool = True
    forks: bool = False
    awaited: bool = False
    gives_attributes: bool = False
    account: str = OWN

    @property
    def name(self) -> str:
        """What tells it from the same app as another account: no app's name has an @."""
        return f"{self.app}@{self.account}" if self.account else self.app

    @property
    def for_everybody(self) -> bool:
        """Whether its executors are given the tasks of all users, and not of those who have its account."""
        return not self.supervised

    @property
    def one_user(self) -> bool:
        """Whether each executor runs one user's tasks only, from its first on. It has one place, then.

        One that several users share, or that was attached, is its operator's to answer for.
        """
        return self.supervised and not self.one_process


class ExecutorState:
    """An executor that said hello. A place runs one task at a time.

    A place is free, or taken by an ask, or busy. An executor that is for one user (`AppPlan.one_user`) is *fresh*
    until it is given its first task, and that task's user's ever after. One that is *leaving* gets nothing more: what
    ends it has been decided, or has happened, and `executor_down` follows.
    """

    __slots__ = (
        "app", "attributes", "busy_places", "came_at_s", "commons", "did_tasks", "ended_here", "failures_before",
        "free_since_s", "fresh", "gone", "id", "leaving", "places", "revoked", "running", "user", "version",
        "waiting",
    )  # fmt: skip

    def __init__(self, executor_id: str, app: AppState, places: int, came_at_s: float, version: int) -> None:
        """version: of the executor protocol."""
        self.id = executor_id
        self.version = version
        self.app = app
        self.places = places
        self.fresh = app.plan.one_user
        """Whether it is to be one user's and is nobody's yet."""
        self.user: str | None = None
        """Whose it is; nobody's while it is fresh, and where users share executors."""
        self.busy_places = 0
        self.free_since_s = 0.0
        """When a task of it ended last."""
        self.came_at_s = came_at_s
        self.failures_before = app.offer.failures
        """Of its app, when it came."""
        self.did_tasks = False
        self.leaving = False
        self.ended_here = False
        """Whether it is leaving as its end was decided here."""
        self.gone = False
        self.running: dict[int, Attempt] = {}
        """Runs given to it and not ended, oldest first."""
        self.revoked: list[int] = []
        """Runs asked back and not answered for, in the order of asking, which is that of the answers."""
        self.waiting: Attempt | None = None
        """The one that waits for other tasks, and has no slot meanwhile: its place is neither busy nor free."""
        self.commons: set[int] = set()
        """Numbers of the common bytes that it was sent."""
        self.attributes: dict[str, str] = {}
        """What it says of its node."""

    def worked_s(self, now_s: float) -> float:
        """How long it has worked for its first run, which with one place is the only one that it works for."""
        first = next(iter(self.running.values()), None)
        return 0.0 if first is None or first.began_at_s is None else now_s - first.began_at_s

    def end(self, run: int, now_s: float) -> None:
        """The run is over; if another waited for it, that one begins, unless the executor is gone."""
        attempt = self.running.pop(run)
        if attempt.ahead is not None:
            attempt.is_not_behind()
        elif self.places == 1 and self.running and not self.gone:
            next(iter(self.running.values())).begins(now_s)


class Balance:
    """Whether there may be too few executors for a user, or too many that are kept: `Supervision` evens that out.

    idle_max: executors of an app that are kept for their users while they have nothing to do.
    """

    __slots__ = ("idle_max", "uneven")

    def __init__(self, idle_max: int) -> None:
        self.idle_max = idle_max
        self.uneven = False


class OfferedApp:
    """An app as users name it: its executors by the account as which they run.

    for_everybody: those for all users, if they are for all. idle: how many of one user each have nothing to do, of all
    accounts.
    """

    __slots__ = ("_users", "balance", "by_account", "for_everybody", "idle")

    def __init__(self, users: UserAccounts, balance: Balance) -> None:
        self.balance = balance
        self.by_account: dict[str, AppState] = {}
        self.idle = 0
        self._users = users
        self.for_everybody: AppState | None = None

    def add(self, plan: AppPlan) -> AppState:
        """Its executors of one more account."""
        state = self.by_account[plan.account] = AppState(plan, self)
        if plan.for_everybody or not self._users.maps:
            self.for_everybody = state
        return state

    def of(self, user: str) -> AppState | None:
        """The executors for this user's tasks, where not all have the same; None if the user has no account here."""
        account = self._users.of(user)
        return None if account is None else self.by_account[account]

    @property
    def runtime(self) -> str:
        """What its executors run."""
        return next(iter(self.by_account.values())).plan.runtime

    @property
    def told(self) -> bool:
        """Whether schedulers are told that it runs here: it does for some account."""
        return any(state.offer.told for state in self.by_account.values())

    @property
    def withdrawn(self) -> str:
        """Why it is withdrawn; empty if it is not, for some account."""
        reasons = [state.offer.reason for state in self.by_account.values() if state.offer.withdrawn]
        return reasons[0] if reasons and not self.told else ""

    @property
    def has_accounts(self) -> bool:
        """Whether its executors run as several accounts: each has fewer ahead of need."""
        return len(self.by_account) > 1

    def share(self, slots: int) -> int:
        """How many fresh executors each account has ahead of need: as many as slots in all, and one at least."""
        return max(1, slots // len(self.by_account))

    def surplus(self, slots: int) -> int:
        """How many executors it has that nobody waits for: idle ones, and fresh ones beyond the accounts' shares."""
        share = self.share(slots)
        return self.idle + sum(max(0, state.fresh - share) for state in self.by_account.values())

    def least_wanted(self, slots: int) -> ExecutorState | None:
        """Of those the one to end: a fresh one, or that which its user has not used for longest; None if all work."""
        share = self.share(slots)
        states = self.by_account.values()
        spare = next((state.free[0] for state in states if state.free and state.fresh > share), None)
        if spare is not None:
            return spare
        idle = [state.unused_longest() for state in states if state.kept]
        return min(idle, key=lambda executor: executor.free_since_s, default=None)


class AppState:
    """An app's executors of one account."""

    __slots__ = (
        "_balance", "executors", "free", "fresh", "kept", "name", "offer", "offered", "plan", "short", "starting",
        "suspicion", "waiting", "wanted",
    )  # fmt: skip

    def __init__(self, plan: AppPlan, offered: OfferedApp) -> None:
        self.plan = plan
        self.name = plan.name
        self.offered = offered
        """The app, with the executors of other accounts."""
        self._balance = offered.balance
        self.executors: dict[str, ExecutorState] = {}
        self.free: list[ExecutorState] = []
        """An entry for each free place that is nobody's; the one freed last is used first, while it is warm."""
        self.kept: dict[str, list[ExecutorState]] = {}
        """Free executors by the user whose they are, the one freed last at the end; users with none left out."""
        self.fresh = 0
        """Executors that are for one user and have none yet, but for those that are leaving."""
        self.short: set[str] = set()
        """Users who were passed over since executors were last wanted, as none was free for them."""
        self.wanted = False
        self.starting = 0
        """Processes started that have not said hello."""
        self.waiting = 0
        """Restarts that wait for their time."""
        self.offer = Offer(awaited=plan.awaited)
        self.suspicion = Suspicion()

    def missing(self, slots: int, lacking: int = 0) -> int:
        """How many processes to start, beside those that are being started.

        Where users share executors that is one process. Else there are to be fresh ones, so that nobody waits for a
        start: as many as slots if they cost next to nothing. If not, there are as many executors as slots, whose ever
        they are, beside those whose tasks wait without one, and more only for users who lack one. Of as many as slots
        each account has its share, and more only as it lacks them. lacking: how many tasks could start now if they had
        one. Of an app that is withdrawn one process is tried at a time.
        """
        plan = self.plan
        if not plan.supervised:
            return 0
        if plan.one_process or self.offer.withdrawn:
            wanted = 1 - len(self.executors)
        elif plan.forks:
            wanted = max(self.offered.share(slots), lacking) - self.fresh
        else:
            owned = sum(
                not executor.leaving and executor.user is not None and executor.waiting is None
                for executor in self.executors.values()
            )
            wanted = max(self.offered.share(slots) - owned, lacking) - self.fresh
        return max(0, wanted - self.starting - self.waiting)

    def came(self, executor: ExecutorState) -> None:
        """An executor said hello."""
        self.executors[executor.id] = executor
        self.free += [executor] * executor.places
        self.fresh += executor.fresh
        self.starting = max(0, self.starting - 1)

    def retire(self, executor: ExecutorState) -> None:
        """An executor is leaving: its free places are none."""
        if executor.leaving:
            return
        executor.leaving = True
        if executor.user is None:
            self.fresh -= executor.fresh
            self.free = [other for other in self.free if other is not executor]
        elif executor in self.kept.get(executor.user, ()):
            self._take_out(executor)

    def went(self, executor: ExecutorState) -> None:
        """An executor is gone."""
        self.retire(executor)
        executor.gone = True
        del self.executors[executor.id]

    def serves(self, user: str) -> bool:
        """Whether a place is free that a task of this user may have."""
        return bool(self.free) or user in self.kept

    def take_place(self, user: str) -> ExecutorState:
        """Take a free place that a task of this user may have, to be used or released; there must be one."""
        kept = self.kept.get(user) if self.kept else None
        if kept is None:
            return self.free.pop()
        executor = kept.pop()
        self.offered.idle -= 1
        if not kept:
            del self.kept[user]
        return executor

    def release(self, executor: ExecutorState) -> None:
        """A place that was taken is free again."""
        if executor.leaving:
            return
        if executor.user is None:
            self.free.append(executor)
        else:
            self._keep(executor, executor.user)

    def assign(self, executor: ExecutorState, user: str) -> None:
        """A fresh executor is this user's from now on."""
        executor.fresh = False
        executor.user = user
        self.fresh -= 1

    def free_places(self, executor: ExecutorState, now_s: float) -> int:
        """Free the executor's places that run nothing any more; returns how many slots that frees."""
        needed = len(executor.running) if executor.places > 1 else bool(executor.running)
        freed = executor.busy_places - needed
        executor.busy_places = needed
        user = executor.user
        if user is None:
            if executor.leaving:
                pass
            elif freed == 1:
                self.free.append(executor)
            else:
                self.free += [executor] * freed
            return freed
        if freed and not executor.leaving:
            executor.free_since_s = now_s
            self._keep(executor, user)
        if self.offered.idle > self._balance.idle_max and not executor.gone:
            self._balance.uneven = True
        return freed

    def passed_over(self, user: str) -> None:
        """It was the user's turn, and no executor was free for the user's task."""
        if self.plan.one_user:
            self.short.add(user)
            self._balance.uneven = True

    def unused_longest(self) -> ExecutorState:
        """The executor that its user has not used for longest; there must be one in `kept`."""
        return min((kept[0] for kept in self.kept.values()), key=lambda executor: executor.free_since_s)

    def _keep(self, executor: ExecutorState, user: str) -> None:
        """It is free, for this user."""
        self.offered.idle += 1
        kept = self.kept.get(user)
        if kept is None:
            self.kept[user] = [executor]
        else:
            kept.append(executor)

    def _take_out(self, executor: ExecutorState) -> None:
        assert executor.user is not None
        kept = self.kept[executor.user]
        kept.remove(executor)
        self.offered.idle -= 1
        if not kept:
            del self.kept[executor.user]

    def problem(self, taken: int) -> str | None:
        """What of this does not hold, if anything. `taken`: places that asks have of executors that are usable."""
        usable = [executor for executor in self.executors.values() if not executor.leaving]
        free = sum(one.places - one.busy_places - (one.waiting is not None) for one in usable) - taken
        kept_count = sum(len(kept) for kept in self.kept.values())
        if len(self.free) != free - kept_count:
            return f"{len(self.free)} places free and {kept_count} kept; in all there are {free}"
        fresh = sum(one.fresh for one in usable)
        if self.fresh != fresh:
            return f"{self.fresh} fresh executors; there are {fresh}"
        for user, kept in self.kept.items():
            if not kept or any(one.user != user or one.leaving for one in kept):
                return f"executors kept for {user}: {[one.id for one in kept]}"
        for one in self.executors.values():
            if one.user is not None and any(attempt.charge.ticket.user != one.user for attempt in one.running.values()):
                return f"executor {one.id} of {one.user} runs others' tasks"
        return None
