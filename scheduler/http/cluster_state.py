"""What a scheduler shows of itself once a second: nodes, users, jobs, rates, and what its plane does.

What is common to all who look is made once for all of them. Of other users' jobs a user sees nothing, as in the rest of
the API; of their slots only the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import msgspec

from scheduler.http import views
from scheduler.http.views import JobRow
from scheduler.recent.gone_jobs import GoneJob
from scheduler.recent.held_slots import fair_slots
from scheduler.recent.hour import Span, span_for

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState
    from scheduler.core import SchedulerCore
    from scheduler.recent.recent import Recent
    from sparrow_py.access.principals import Principal

JOBS_SHOWN_MAX = 200
"""Jobs in one state."""
JOBS_SEARCHED_MAX = 10_000
"""Jobs that a search looks at, those that came last first."""
JOBS_SKIPPED_MAX = 100_000
"""Jobs that it passes by as they are other users'."""
NODES_SHOWN_MAX = 5_000
"""Nodes in one state."""
USERS_SHOWN_MAX = 50
"""Users in one state, those with most slots; the others' are in one row."""
SEARCH_CHARS_MAX = 256


class FoundJobs(msgspec.Struct):
    """Jobs that were searched for, the latest first: those that run before those that are gone. `here`: the jobs that
    run, found or not; `more`: whether there may be others that fit."""

    jobs: list[JobRow]
    here: int
    more: bool


class UserRow(msgspec.Struct):
    """A user's slots: `busy`, of the attempts that this scheduler has at nodes; `due`, by weight and by what it wants;
    `waiting` tasks. Of several users together `user` is empty."""

    user: str
    weight: float | None
    busy: int
    due: float
    waiting: int


class Roster(msgspec.Struct):
    """Nodes, in the order in which later states have their figures."""

    ids: list[str]
    addresses: list[str]
    slots: list[int]
    more: int
    """Nodes that are not shown."""


class NodeFigures(msgspec.Struct):
    """Of the nodes of the roster, in its order. `busy` and `reservations` are this scheduler's own there; `states` has
    those nodes that are not ready."""

    busy: list[int]
    reservations: list[int]
    states: dict[str, str]


class ClusterState(msgspec.Struct, kw_only=True):
    """See the module's docstring. `rates`: by counter, so many a second, of late."""

    now_s: float
    name: str
    address: str
    policy: str
    placement: str
    takes_jobs: bool
    why_not: str
    nodes: int
    slots: int
    busy: int
    unplaced: int
    jobs_here: int
    rates: dict[str, float]
    plane: list[tuple[str, float | str]]
    users: list[UserRow]
    figures: NodeFigures
    span: Span | None
    """The latest of the last hour; `/v1/history` has those before."""
    found: FoundJobs


class StateFeed:
    """Makes states. `of` is to be called as often as there is something to show, with the time."""

    def __init__(self, core: SchedulerCore, recent: Recent, about: Callable[[], dict[str, object]]) -> None:
        """about: the scheduler's name, address, placement, whether it takes jobs and why not."""
        self._core = core
        self._recent = recent
        self._about = about
        self._made_s = -1.0
        self._common: dict[str, object] = {}
        self._encoded: dict[tuple[str, str, str], bytes] = {}
        """Of the present moment, by who looks and what is searched for."""
        self.roster = Roster([], [], [], 0)

    def of(self, principal: Principal, search: str, now_s: float) -> bytes:
        """The state as this principal may see it, in JSON. All who ask with the same time share what can be shared."""
        if now_s != self._made_s:
            self._made_s = now_s
            self._encoded = {}
            self._common = self._make_common(now_s)
        key = principal.role, principal.user, search
        encoded = self._encoded.get(key)
        if encoded is None:
            spans = self._recent.hour.spans
            fields = self._common | {
                "users": self._users(principal),
                "found": found_jobs(self._core, self._recent, principal, search),
                "span": span_for(spans[-1], principal.may_act_for) if spans else None,
            }
            encoded = self._encoded[key] = msgspec.json.encode(ClusterState(**fields))  # type: ignore[arg-type]
        return encoded

    def _make_common(self, now_s: float) -> dict[str, object]:
        core = self._core
        nodes = core.nodes.all()
        shown = nodes[:NODES_SHOWN_MAX]
        ids = [node.id for node in shown]
        if ids != self.roster.ids or len(nodes) - len(shown) != self.roster.more:
            addresses, slots = [node.info.address for node in shown], [node.info.slots for node in shown]
            self.roster = Roster(ids, addresses, slots, len(nodes) - len(shown))
        figures = NodeFigures(
            [len(node.attempts) for node in shown],
            [core.live_reservations(node.id) for node in shown],
            {node.id: node.state for node in shown if node.state != "ready"},
        )
        return {
            **self._about(),
            "now_s": now_s,
            "nodes": len(nodes),
            "slots": sum(node.info.slots for node in nodes),
            "busy": sum(len(node.attempts) for node in nodes),
            "unplaced": sum(core.admission.unplaced.values()),
            "jobs_here": len(core.jobs),
            "rates": self._recent.rates.now,
            "plane": plane_figures(core, now_s),
            "figures": figures,
        }

    def _users(self, principal: Principal) -> list[UserRow]:
        """Who has how many slots; the most first."""
        core, busy = self._core, self._recent.slots.by_user
        unplaced, weight = core.admission.unplaced, core.options.weight
        wanted = {user: busy.get(user, 0) + unplaced.get(user, 0) for user in {*busy, *unplaced}}
        due = fair_slots(self._recent.slots.slots, wanted, {user: weight(user) for user in wanted})
        rows = [
            UserRow(user, weight(user), busy.get(user, 0), due[user], unplaced.get(user, 0))
            for user in sorted(wanted, key=lambda user: (-busy.get(user, 0), -wanted[user], user))
            if wanted[user]
        ]
        own = [row for row in rows if principal.may_act_for(row.user)][:USERS_SHOWN_MAX]
        shown = {row.user for row in own}
        others = [row for row in rows if row.user not in shown]
        if others:
            busy_of, due_of = sum(row.busy for row in others), sum(row.due for row in others)
            own.append(UserRow("", None, busy_of, due_of, sum(row.waiting for row in others)))
        return own


def found_jobs(core: SchedulerCore, recent: Recent, principal: Principal, search: str) -> FoundJobs:
    """The latest jobs that the principal may see and whose id, name, user or app has this text, in whatever case."""
    wanted = search.casefold()
    jobs: list[JobRow] = []
    looked = skipped = more = 0
    latest: Iterator[JobState | GoneJob] = chain(reversed(core.jobs.values()), _not_here(core, recent))
    for job in latest:
        if len(jobs) == JOBS_SHOWN_MAX or looked == JOBS_SEARCHED_MAX or skipped == JOBS_SKIPPED_MAX:
            more = 1
            break
        if not principal.may_act_for(job.user):
            skipped += 1
            continue
        looked += 1
        if wanted and not _has(job, wanted):
            continue
        jobs.append(views.row(job))
    here = len(core.jobs) if principal.may_act_for("") else sum(row.state == "running" for row in jobs)
    return FoundJobs(jobs, here, bool(more))


def _not_here(core: SchedulerCore, recent: Recent) -> Iterator[GoneJob]:
    return (job for job in recent.gone.latest_first() if job.id not in core.jobs)


def _has(job: JobState | GoneJob, wanted: str) -> bool:
    app = job.app if isinstance(job, GoneJob) else job.stages[0].spec.app
    return wanted in f"{job.id}\n{job.name}\n{job.user}\n{app}".casefold()


def plane_figures(core: SchedulerCore, now_s: float) -> list[tuple[str, float | str]]:
    """What the plane does, as names and values for people."""
    plane, figures = core.plane, list[tuple[str, float | str]]()
    if core.leading is not None:
        figures += [("leads", core.leading.state.name.lower().replace("_", " ")), ("lead epoch", core.leading.epoch)]
    if (rounds := plane.rounds) is not None:
        figures += [
            ("rounds", rounds.rounds), ("rounds without an answer", rounds.failed), ("placements that were late",
            rounds.stale), ("nodes of the network", rounds.nodes), ("arcs of the network", rounds.arcs),
            ("longest wait for a place, s", round(plane.oldest_wait_s(now_s), 3)),
        ]  # fmt: skip
        figures += [(f"rounds won by {solver}", count) for solver, count in islice(sorted(rounds.wins.items()), 10)]
    if (lending := plane.lending) is not None:
        figures += [
            ("jobs that share the cluster", lending.jobs), ("jobs that yield", lending.yielding),
            ("tasks started as they had to", lending.must), ("tasks started on lent slots", lending.lent),
            ("ends that moved back", lending.late),
        ]  # fmt: skip
    counters = core.counters
    if counters.reservations:
        figures += [
            ("reservations per start", round(counters.reservations / max(1, counters.launched), 3)),
            ("reservations on idle nodes", counters.reservations_idle),
            ("reservations passed to other jobs", counters.reservations_shared),
            ("reservations cancelled", counters.reservations_cancelled),
        ]  # fmt: skip
    if counters.asks:
        figures += [("getTask messages", counters.asks), ("no-ops", counters.noops)]
    return figures
