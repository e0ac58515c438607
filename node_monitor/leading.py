"""Which scheduler leads each plane that has a leader, as far as this node has been told: whose placed tasks it takes.

A plane that places tasks for the whole cluster has one scheduler at a time that may do so. There is no service that
elects one: each node accepts the highest lead epoch that it hears of, and the first that claims it; a scheduler leads
once more than half of its nodes have accepted it (`scheduler.leading`). A node that has been restarted knows of none.
Two planes that place tasks would fill the same slots: while a leader of one is linked, a node accepts none of another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from node_monitor.attempt_book import AttemptBook
from node_monitor.fences import Owner
from node_monitor.history import History
from sparrow_py.errors import LinkError, shown
from sparrow_py.wire import messages as m

PLANES_MAX = 8
"""Planes of which a node remembers the leader."""
PLACED_JOBS_MAX = 10_000
"""Jobs that leaders have placed here and that have not ended long ago, as they are named to the next: the latest. What
runs is named besides."""
PLACED_JOBS_MIN = 100
ENDED_NAMED_S = 300.0
"""So long a job is named that has ended, as its client may not have been told, and bring it to the next leader: for
outcomes that are held."""


class _Leader:
    """The scheduler whose placed tasks are taken."""

    __slots__ = ("address", "epoch", "leads", "scheduler")

    def __init__(self) -> None:
        self.epoch = 0
        self.scheduler = ""
        """Its name: another process at the same address has another."""
        self.address = ""
        """Where it was dialled, for people."""
        self.leads = False
        """Whether it has not said since that it leads no more."""


class Leading:
    """The leaders by plane. `share` of the limits, for one of several nodes
    in a process."""

    __slots__ = (
        "_book", "_ended", "_history", "_leaders", "_linked", "_placed_max", "_to_scheduler", "_watchers",
        "has_no_jobs", "leader_changed", "placed_jobs",
    )  # fmt: skip

    def __init__(
        self, book: AttemptBook, history: History, to_scheduler: Callable[[str, m.Message], None], share: float = 1.0
    ) -> None:
        self._book = book
        self._history = history
        self._to_scheduler = to_scheduler
        self._linked: dict[str, str] = {}
        """The linked schedulers by name, and where they were dialled."""
        self._leaders: dict[str, _Leader] = {}
        """By plane."""
        self._watchers: dict[str, dict[str, None]] = {}
        """By plane: linked schedulers that have sent `Lead`, and so are told of changes."""
        self.placed_jobs: dict[str, set[Owner]] = {}
        """Jobs of which leaders have placed tasks here, the oldest first, by id. While there are none, nobody need say
        that jobs have ended (`ended`)."""
        self._ended: dict[tuple[str, Owner], float] = {}
        """Those of them that have ended, and when, the oldest first."""
        self._placed_max = max(PLACED_JOBS_MIN, int(PLACED_JOBS_MAX * share))
        self.leader_changed: Callable[[float], None] = _nobody_waits
        """Called with the time once another leader is accepted, or the one that was leads no more: what waits here and
        is `accepts`-ed no more is to be handed back."""
        self.has_no_jobs: Callable[[str], None] = _no_matter
        """Called with a scheduler that asks who leads, and so has given up its jobs, if it had any."""

    # ---- what others ask ---------------------------------------------------------------------

    def accepts(self, scheduler: str, lead: int) -> bool:
        """Whether tasks may start that this scheduler has placed with this lead epoch."""
        return any(
            leader.epoch == lead and leader.scheduler == scheduler and self._is_linked(leader)
            for leader in self._leaders.values()
        )

    def _is_linked(self, leader: _Leader) -> bool:
        """Whether it leads, as far as it has said, and is linked."""
        return leader.leads and leader.scheduler in self._linked

    @property
    def watchers(self) -> Collection[str]:
        """The linked schedulers that have sent `Lead`: they place tasks, or will if the one that does is gone."""
        return dict.fromkeys(scheduler for watchers in self._watchers.values() for scheduler in watchers)

    def placed(self, owner: Owner, job: str) -> None:
        """A task of the job has come from a leader, and was accepted: the next leader is told of the job."""
        placed = self.placed_jobs
        self._ended.pop((job, owner), None)
        owners = placed.get(job)
        if owners is not None:
            owners.add(owner)
            return
        placed[job] = {owner}
        if len(placed) > self._placed_max:
            oldest = next(iter(placed))
            for one in list(placed[oldest]):
                self._forget(oldest, one)

    def ended(self, job: str, owner: Owner | None, now_s: float) -> None:
        """The job of this owner has ended, as its scheduler says; any of this id, if nobody knows whose it was."""
        owners = self.placed_jobs.get(job, set())
        for one in owners if owner is None else owners & {owner}:
            self._ended.pop((job, one), None)
            self._ended[job, one] = now_s
        self._forget_ended(now_s)

    def _forget_ended(self, now_s: float) -> None:
        while self._ended:
            (job, owner), since_s = next(iter(self._ended.items()))
            if since_s >= now_s - ENDED_NAMED_S:
                break
            self._forget(job, owner)

    def _forget(self, job: str, owner: Owner) -> None:
        self.placed_jobs[job].discard(owner)
        if not self.placed_jobs[job]:
            del self.placed_jobs[job]
        self._ended.pop((job, owner), None)

    # ---- events ------------------------------------------------------------------------------

    def up(self, scheduler: str, address: str) -> None:
        """A link to a scheduler stands, which was dialled at this address."""
        self._linked[scheduler] = address
        for plane, leader in self._leaders.items():
            if leader.leads and leader.scheduler == scheduler:
                self._tell_watchers(plane, leader)

    def down(self, scheduler: str) -> None:
        """The link is gone."""
        self._linked.pop(scheduler, None)
        for plane, watchers in self._watchers.items():
            watchers.pop(scheduler, None)
            leader = self._leaders.get(plane)
            if leader is not None and leader.leads and leader.scheduler == scheduler:
                self._tell_watchers(plane, leader)
                self._tell_other_planes(plane, leader)

    def lead(self, scheduler: str, message: m.Lead, now_s: float) -> None:
        """A scheduler leads a plane from now on, or asks who does; `LinkError` if it may not say so."""
        leader, epoch = self._leader(message), message.epoch
        self._watchers.setdefault(message.plane, {})[scheduler] = None
        taken_by = self._leads_another(message.plane)
        if epoch == 0:
            self._asked(scheduler, message.plane, leader, now_s)
        elif taken_by is not None:
            self._say(scheduler, *taken_by)
        elif epoch > leader.epoch:
            self._accept(scheduler, message, leader, now_s)
        elif (epoch, scheduler) == (leader.epoch, leader.scheduler) and not leader.leads:
            leader.leads = True
            self._tell_watchers(message.plane, leader)
        self._say(scheduler, message.plane, leader)
        if (epoch, scheduler) == (leader.epoch, leader.scheduler):
            self._forget_ended(now_s)
            self._tell_inventory(scheduler, message.plane, epoch)

    def _leader(self, message: m.Lead) -> _Leader:
        if not 0 <= message.epoch < m.LEAD_EPOCH_MAX or not 0 < len(message.plane) <= m.PLANE_CHARS_MAX:
            raise LinkError(f"epoch {message.epoch} of plane {shown(message.plane)} is no lead")
        leader = self._leaders.get(message.plane)
        if leader is not None:
            return leader
        if len(self._leaders) >= PLANES_MAX:
            raise LinkError(f"plane {shown(message.plane)}: leaders of {PLANES_MAX} planes are known already")
        leader = self._leaders[message.plane] = _Leader()
        return leader

    def _leads_another(self, plane: str) -> tuple[str, _Leader] | None:
        """Another plane that has a leader here."""
        others = ((one, leader) for one, leader in self._leaders.items() if one != plane)
        return next((other for other in others if self._is_linked(other[1])), None)

    def _asked(self, scheduler: str, plane: str, leader: _Leader, now_s: float) -> None:
        """A scheduler asks: if it led, it leads no more, and what it has placed here is the next leader's."""
        if leader.leads and leader.scheduler == scheduler:
            leader.leads = False
            self._tell_watchers(plane, leader)
            self._tell_other_planes(plane, leader)
            self.leader_changed(now_s)
        self.has_no_jobs(scheduler)

    def _accept(self, scheduler: str, message: m.Lead, leader: _Leader, now_s: float) -> None:
        another = leader.scheduler != scheduler
        for other in self._leaders.values():
            if other is not leader:  # Of another plane, and not linked: it is not to come back beside this one.
                other.leads = False
        leader.epoch, leader.scheduler, leader.leads = message.epoch, scheduler, True
        leader.address = self._linked.get(scheduler, "")
        order = ", by order" if message.forced else ""
        self._history.note(
            now_s, "scheduler %s leads plane %s with epoch %d%s", scheduler, message.plane, message.epoch, order
        )
        if another:
            self._tell_watchers(message.plane, leader)
            self.leader_changed(now_s)

    # ---- what schedulers are told ------------------------------------------------------------

    def _say(self, scheduler: str, plane: str, leader: _Leader) -> None:
        linked = self._is_linked(leader)
        self._to_scheduler(scheduler, m.Leading(plane, leader.epoch, leader.scheduler, linked, leader.address))

    def _tell_watchers(self, plane: str, leader: _Leader) -> None:
        """All that have sent `Lead` for the plane, but for its leader."""
        for scheduler in list(self._watchers.get(plane, ())):
            if scheduler != leader.scheduler:
                self._say(scheduler, plane, leader)

    def _tell_other_planes(self, plane: str, leader: _Leader) -> None:
        """Who would lead another plane may do so from now on."""
        for other, watchers in self._watchers.items():
            for scheduler in list(watchers) if other != plane else ():
                self._say(scheduler, plane, leader)

    def _tell_inventory(self, scheduler: str, plane: str, epoch: int) -> None:
        jobs = list(dict.fromkeys(self._jobs_here()))
        for first in range(0, len(jobs) or 1, m.NUMBERS_PER_MESSAGE_MAX):
            some = jobs[first : first + m.NUMBERS_PER_MESSAGE_MAX]
            complete = first + m.NUMBERS_PER_MESSAGE_MAX >= len(jobs)
            self._to_scheduler(scheduler, m.Inventory(plane, epoch, some, complete))

    def _jobs_here(self) -> Iterator[tuple[str, str, int]]:
        """(user, job, instance) of all that has an attempt here, sampled or placed, and of jobs that were placed here
        and have not ended long ago: of some of them an outcome is held."""
        for attempt in self._book.by_key.values():
            user, instance = attempt.job.owner
            yield user, attempt.job.id, instance
        for job, owners in self.placed_jobs.items():
            for user, instance in owners:
                yield user, job, instance


def _nobody_waits(now_s: float) -> None:
    """Of tasks that were placed."""


def _no_matter(scheduler: str) -> None:
    """Nothing is kept of its jobs."""
