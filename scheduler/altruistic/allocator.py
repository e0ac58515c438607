"""Altruistic scheduling of jobs on machines: who starts what now, and where (paper 002, pseudocode 1).

Each job has its share, and plans within that (`intra`). Tasks that must run start first. What is left over then, since
jobs yielded it, goes to tasks that may run. A task that is lent room may still be at work when another job's tasks must
start there: with `Lend.PROFILE` nothing is lent into what jobs have planned, and in a pool, which is one machine, no
job ends later than its first target for that (theorem 3.1); the paper's lends whatever is free.

Something happens (`job_came`, `ended`, `machines_came`, …), then the allocator is pumped, once for all that happened at
a time: it says what starts. Amounts are in any unit, the same for machines and tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scheduler.altruistic.ahead import Ahead
from scheduler.altruistic.dags import Dag, Vector
from scheduler.altruistic.intra import Job, Plan, due, planned
from scheduler.altruistic.machines import Machines
from scheduler.altruistic.matching import (
    bounds_of,
    fill_caps,
    match_fairly,
    match_in_order,
    small_job_bonus,
    those_that_fit,
)
from scheduler.altruistic.orders import Order, priorities
from scheduler.altruistic.packing import Runs
from scheduler.altruistic.profile import ROUNDING, Flags, Indexes, Matrix, Profile
from scheduler.altruistic.ready import JobRows, Ready
from scheduler.altruistic.settings import CARBYNE, JOB_AFTER_JOB, TASK_AFTER_TASK, Lend, Rank, Settings
from scheduler.altruistic.shares import Queue, Queues, caps, closed_form, demand_vectors, filled, weights_of

Owners = tuple[Indexes, Matrix, Matrix, Matrix]
"""Whose each row is; what these have, are entitled to, and may have at most."""
FOUND = 4_096
"""Pairs of a group and a machine that are looked for at once."""
PLAN_UNITS_MAX = 1e7
"""Of a job (`Dag.plan_units`), where plans are rationed: one of more is not planned, and yields nothing."""
PLAN_UNITS_AT_ONCE = 1e6
"""Once plans that are made at a time take so much, where they are rationed, the others wait."""
NO_MOST = np.empty((0, 0))
"""Whose tasks may have all that there is."""
NO_LIMITS: Flags = np.ones((1, 0), np.bool_)
SHRUNK = 1e-6
"""What a job may use has shrunk if it is this part less."""


class Start(NamedTuple):
    """Tasks of a job start on a machine."""

    job: str
    group: int
    machine: str
    tasks: int
    end_s: float
    """When they are expected to end; `Allocator.ended` is told this."""
    is_lent: bool


@dataclass(slots=True)
class JobHere:
    """What is known of a job."""

    name: str
    job: Job
    row: int
    user: str
    weight: float
    demand: Vector
    """In proportion: its whole work when it came, or machines did that it needs; 1 of the dominant resource."""
    anew: bool = False
    """Whether its target may move back."""
    late: int = 0
    """How often its target has moved back."""
    can_yield: bool = True
    """Whether it is known how long all its tasks take: else it has its share, and yields nothing."""
    can_plan: bool = True
    """Whether there is ever time for its plan, where plans are rationed."""
    has_room: bool = True
    """Whether there are machines with the resources that it needs: without them there is nothing to plan with."""

    @property
    def may_yield(self) -> bool:
        """If it is not for chance to say."""
        return self.can_yield and self.can_plan and self.has_room


class Allocator:
    """See the module's docstring. users: their weights, 1 where none is stated. draw: a number from 0, below 1, by
    chance: a job yields if that is below `Settings.altruism`. queues: of a capacity scheduler (`Rank.CAPACITY`).
    plan_units_per_s: if it is finite, plans are rationed: those for which there is no time stand as they are, and jobs
    without one yield nothing until they have one."""

    def __init__(
        self,
        resources: int,
        settings: Settings = CARBYNE,
        users: Mapping[str, float] | None = None,
        draw: Callable[[], float] = lambda: 0.0,
        queues: Mapping[str, Queue] | None = None,
        plan_units_per_s: float = np.inf,
    ) -> None:
        self.settings = settings
        self.machines = Machines(resources)
        self.jobs: dict[str, JobHere] = {}
        self.rows = JobRows(resources)
        """What jobs have; for those who measure."""
        self.next_s = np.inf
        """When it is to be pumped again, if nothing else happens."""
        self.unfit = 0
        """How often a task that had to run fitted nowhere."""
        self.late = 0
        """How often a job's target has moved back."""
        self.yielding = 0
        """How many jobs yielded when it was pumped last."""
        self._users = dict(users or {})
        self._draw = draw
        self._queues = Queues(queues or {})
        self._units_per_s = plan_units_per_s
        self._units_left = PLAN_UNITS_AT_ONCE
        self._units_at_s = -np.inf
        """When it was counted how many are left."""
        self._came = 0
        self._by_row: dict[int, JobHere] = {}
        self._ready = Ready(resources)
        self._allowed: Flags = NO_LIMITS
        self._wanted: Flags = NO_LIMITS
        self._limited: dict[int, Flags] = {}
        """Of rows whose tasks may not use all machines: those that they may."""
        self._shares_changed = False
        self._user_of: Indexes = np.zeros(0, np.int64)
        """By job, the number of its user."""
        self._dues: Vector = np.zeros(0)
        """By user, the part of the cluster that is due."""
        self._to_plan: dict[str, JobHere] = {}
        """Jobs to which something has happened."""
        self._never_yield: dict[str, JobHere] = {}
        """Jobs of which it is not known how long they take, or that cannot be planned, or not now."""
        self._unmeasured: dict[str, JobHere] = {}
        """Jobs of which other tasks wait than when it was measured how much work is left."""
        self._new_rows: set[int] = set()
        """Groups of which more tasks wait than before."""
        self._unfit: Indexes = np.zeros(0, np.int64)
        """Groups of tasks that had to run and fitted nowhere when that was looked at last, and perhaps some that are
        here no more."""
        self._ahead: Ahead | None = None
        """With `Lend.PROFILE`, while it is pumped."""
        self._found = (np.empty(FOUND, np.int64), np.empty(FOUND, np.int64), np.empty(FOUND, np.int64))

    # ---- machines ----------------------------------------------------------------------------------

    def machines_came(self, names: Sequence[str], capacity: Matrix) -> None:
        """Machines are new, or have other resources than before: a row each. What runs there runs on."""
        self.machines.came(names, capacity)
        self._shares_changed = True
        for here in self.jobs.values():
            self._measure(here)

    def machine_gone(self, name: str) -> None:
        """Nothing starts there any more. Its tasks have been told of as failed, or will be."""
        self.machines_came([name], np.zeros((1, len(self.machines.total))))

    # ---- jobs --------------------------------------------------------------------------------------

    def job_came(
        self, name: str, dag: Dag, user: str = "", weight: float = 1.0, *, can_yield: bool = True, is_new: bool = True
    ) -> None:
        """A job is to be run. Each of its tasks must fit on some machine (`Machines.could_run`). Of one that is not new
        `runs` and `counted` say how far it is."""
        row = self.rows.add(self._came)
        self._came += 1
        here = JobHere(name, Job(dag), row, user, weight, self._demand_of(dag))
        here.has_room = bool((self.machines.total[dag.largest > 0] > 0).all())
        here.can_yield = can_yield
        here.can_plan = self._units_per_s == np.inf or dag.plan_units <= PLAN_UNITS_MAX
        self.jobs[name] = self._by_row[row] = here
        self._note_whether_it_yields(here)
        self._measure(here)
        self._shares_changed = True
        if is_new:
            self._now_ready(here, here.job.ready())

    def job_gone(self, name: str) -> None:
        """The job is over, or is wanted no more; what it has at work is no concern of it. (Tell that it ended.)"""
        here = self.jobs.pop(name)
        for group in range(len(here.job.dag.groups)):
            self._forget_row(here.row, group)
        del self._by_row[here.row]
        self.rows.remove(here.row)
        for others in (self._to_plan, self._never_yield, self._unmeasured):
            others.pop(name, None)
        self._shares_changed = True

    def ended(self, name: str, group: int, machine: str, end_s: float, tasks: int = 1) -> bool:
        """Tasks have ended, which were expected to end then; whether the job is over with that, and gone."""
        here = self._left(name, group, machine, tasks)
        self._now_ready(here, here.job.ended(group, end_s, tasks))
        if here.job.is_over:
            self.job_gone(name)
            return True
        self._to_plan[name] = here
        return False

    def failed(self, name: str, group: int, machine: str, end_s: float, tasks: int = 1) -> None:
        """Tasks have to start again."""
        here = self._left(name, group, machine, tasks)
        here.job.failed(group, end_s, tasks)
        here.anew = True
        self._unmeasured[here.name] = here
        self._now_ready(here, [group])
        self._to_plan[name] = here

    # ---- jobs whose truth is elsewhere -------------------------------------------------------------

    def runs(self, name: str, group: int, machine: str, end_s: float, tasks: int = 1) -> None:
        """Tasks of the job run that were not started by `pump`."""
        here = self.jobs[name]
        amount = tasks * here.job.dag.demand[group]
        here.job.runs(group, end_s, tasks)
        self.machines.take(machine, amount)
        self.rows.has[here.row] += amount
        self._to_plan[name] = here

    def stopped(self, name: str, group: int, machine: str, end_s: float, tasks: int = 1) -> None:
        """Tasks run no more, which were expected to end then; `counted` is called before the next `pump`."""
        here = self._left(name, group, machine, tasks)
        here.job.stopped(group, end_s, tasks)

    def counted(self, name: str, group: int, left: int, *, is_open: bool) -> None:
        """So many tasks of the group have not started, and may now if it is open; the others run, or are over."""
        here = self.jobs[name]
        if here.job.counted(group, left, is_open=is_open):
            here.anew = True
        if is_open and left:
            self._now_ready(here, [group])
        else:
            self._forget_row(here.row, group)
        self._unmeasured[here.name] = here
        self._to_plan[name] = here

    def lasts(self, name: str, dag: Dag, *, can_yield: bool, rose: bool) -> None:
        """It is known better how long tasks of the job take; whether that is longer, of one of its groups at least.
        `dag`: as before, but for durations."""
        here = self.jobs[name]
        here.job.lasts(dag)
        here.can_yield, here.anew = can_yield, here.anew or rose
        self._note_whether_it_yields(here)
        self._measure(here)
        self._now_ready(here, here.job.ready())

    def limit(self, limits: Mapping[tuple[str, int], Flags]) -> None:
        """Tasks of these groups may only use these machines, a flag for each; those of all others may use any."""
        before, self._limited = self._limited, {}
        ready = self._ready
        ready.may_use[list(before)] = -1
        for number, ((name, group), flags) in enumerate(limits.items()):
            row = ready.row_of.get((self.jobs[name].row, group)) if name in self.jobs else None
            if row is None:
                continue
            ready.may_use[row], self._limited[row] = number, flags
            was = before.pop(row, flags)
            if len(was) != len(flags) or (flags & ~was).any():
                self._new_rows.add(row)
        self._new_rows.update(before)
        self._allowed = np.array(list(limits.values())) if limits else NO_LIMITS

    def prefer(self, wanted: Mapping[tuple[str, int], Flags]) -> None:
        """Tasks of these groups have what they read on these machines, a flag for each; those of all others nowhere."""
        ready = self._ready
        ready.wants[:] = -1
        for number, (name, group) in enumerate(wanted):
            row = ready.row_of.get((self.jobs[name].row, group)) if name in self.jobs else None
            if row is not None:
                ready.wants[row] = number
        self._wanted = np.array(list(wanted.values())) if wanted else NO_LIMITS

    def _note_whether_it_yields(self, here: JobHere) -> None:
        """If it is not for chance to say."""
        yields = self.rows.yields[here.row] = here.may_yield
        if yields:
            self._never_yield.pop(here.name, None)
        else:
            self._never_yield[here.name] = here

    def _note_whether_it_has_room(self, here: JobHere, *, has_room: bool) -> None:
        here.has_room = has_room
        if has_room:  # Until now nobody knew which of the resources is scarce.
            here.demand = self._demand_of(here.job.dag)
        self._note_whether_it_yields(here)

    def _left(self, name: str, group: int, machine: str, tasks: int) -> JobHere:
        here = self.jobs[name]
        amount = tasks * here.job.dag.demand[group]
        self.machines.give_back(machine, amount)
        self.rows.has[here.row] -= amount
        return here

    def _now_ready(self, here: JobHere, groups: Sequence[int]) -> None:
        """Tasks of these groups may start."""
        self._to_plan[here.name] = here
        if not groups:
            return
        dag, number = here.job.dag, int(self.rows.number[here.row])
        order = priorities(dag, self.settings.order)
        for group in groups:
            row = self._ready.add(
                here.row, group, number=number, demand=dag.demand[group], duration_s=float(dag.duration_s[group]),
                priority=float(order[group]), left=int(here.job.left[group]),
            )  # fmt: skip
            self._new_rows.add(row)

    def _forget_row(self, job: int, group: int) -> None:
        row = self._ready.row_of.get((job, group))
        if row is not None:
            self._ready.remove(job, group)
            self._row_gone(row)

    def _row_gone(self, row: int) -> None:
        self._new_rows.discard(row)
        self._limited.pop(row, None)
        self.machines.release(row)

    # ---- who starts what ---------------------------------------------------------------------------

    def pump(self, now_s: float) -> list[Start]:
        """What starts now."""
        if not self.jobs:
            self.machines.freed.clear()
            self.next_s = np.inf
            return []
        if self._shares_changed:
            self._share_out()
        starts: list[Start] = []
        if self.settings.altruism > 0:
            selfish = self._selfish()
            self._plan_all(selfish, now_s)
            self._start_must(selfish, starts, now_s)
            self.yielding = len(self.jobs) - len(selfish)
        self._start_may(starts, now_s)
        self.machines.freed.clear()
        self._new_rows.clear()
        rows = self.rows
        self.next_s = float(rows.due_s.min(where=rows.yields, initial=np.inf))
        if self._units_left <= 0 and self._to_plan:
            self.next_s = min(self.next_s, now_s + (1 - self._units_left) / self._units_per_s)
        return starts

    def _selfish(self) -> list[JobHere]:
        """Jobs that yield nothing now, since they never do, or by chance."""
        altruism = self.settings.altruism
        if altruism >= 1:
            return list(self._never_yield.values())
        found = []
        for here in self.jobs.values():
            yields = self.rows.yields[here.row] = here.may_yield and self._draw() < altruism
            if not yields:
                found.append(here)
        return found

    def _share_out(self) -> None:
        """What each job may use, of the jobs and machines that are here."""
        self._shares_changed = False
        here = list(self.jobs.values())
        largest = np.array([each.job.dag.largest for each in here])
        has_room: Flags = ~np.asarray((largest[:, self.machines.total <= 0] > 0).any(axis=1))
        for each, has in zip(here, has_room.tolist(), strict=True):
            if has != each.has_room:
                self._note_whether_it_has_room(each, has_room=has)
        demands = np.array([each.demand for each in here])
        weights = weights_of([(each.user, each.weight) for each in here], self._users)
        shares = closed_form(demands, weights) if (demands > 0).all() else filled(demands, weights)
        found = caps(shares, weights, self.settings.cap, largest * self.machines.unit) * self.machines.total
        for each, cap, share in zip(here, found, shares, strict=True):
            before = self.rows.cap[each.row]
            if (cap < before * (1 - SHRUNK)).any():
                each.anew = True
            if (np.abs(cap - before) > SHRUNK * before).any():
                self.rows.cap[each.row] = cap
                self._to_plan[each.name] = each
            self.rows.share[each.row] = share.max()
        self._note_users(here, weights)

    def _note_users(self, here: Sequence[JobHere], weights: Vector) -> None:
        """Whose each job is, and which part of the cluster is due to each user."""
        number = {user: place for place, user in enumerate(dict.fromkeys(each.user for each in here))}
        self._user_of = np.zeros(len(self.rows.number), np.int64)
        self._dues = np.zeros(len(number))
        for each, weight in zip(here, (weights / weights.sum()).tolist(), strict=True):
            self._user_of[each.row] = number[each.user]
            self._dues[number[each.user]] += weight

    def _in_turn(self, now_s: float) -> list[JobHere]:
        """Jobs that are to be planned now: those to which something has happened, or all if plans must fit beside each
        other; where plans are rationed, as many as there is time for, those first that wait for longest."""
        yields = self.rows.yields
        changed = [here for here in self._to_plan.values() if yields[here.row]]
        if self._units_per_s == np.inf:
            is_beside = self.settings.lend is Lend.PROFILE
            return [here for here in self.jobs.values() if yields[here.row]] if is_beside else changed
        refill = (now_s - self._units_at_s) * self._units_per_s
        self._units_left, self._units_at_s = min(PLAN_UNITS_AT_ONCE, self._units_left + refill), now_s
        planned = []
        for here in changed:
            if self._units_left <= 0:
                break
            self._units_left -= here.job.dag.plan_units
            planned.append(here)
        return planned

    def _to_look_at(self, now_s: float) -> list[JobHere]:
        """Jobs that yield, and may have to start tasks: to which something has happened, or which are due. If plans
        must fit beside each other all of them, in the order in which they came."""
        rows = self.rows
        if self.settings.lend is Lend.PROFILE:
            return [here for here in self.jobs.values() if rows.yields[here.row]]
        found = {here.row: here for here in self._to_plan.values() if rows.yields[here.row]}
        for row in (rows.yields & (rows.due_s <= now_s)).nonzero()[0].tolist():
            found[row] = self._by_row[row]
        return list(found.values())

    def _plan_all(self, selfish: list[JobHere], now_s: float) -> None:
        """Have the plans of jobs, and what they must start now. Jobs that have none, for lack of time, are selfish."""
        looked_at = self._to_look_at(now_s)
        in_turn = {here.row for here in self._in_turn(now_s)}
        self._ahead = None
        if self.settings.lend is Lend.PROFILE:
            self._ahead = Ahead(self.machines.total, [here.job for here in self.jobs.values()], now_s)
        for here in looked_at:
            if here.row in in_turn:
                plan = self._planned(here, now_s)
            elif here.job.target_s == np.inf:
                selfish.append(here)
                continue
            elif self.rows.due_s[here.row] > now_s and here.name not in self._to_plan:
                continue
            else:
                plan = due(here.job, now_s)
            self.rows.due_s[here.row] = plan.next_s
            self._must_start(here, plan.must_run)

    def _planned(self, here: JobHere, now_s: float) -> Plan:
        job, before_s, ahead = here.job, here.job.target_s, self._ahead

        def fits(runs: Runs) -> bool:
            return ahead is None or ahead.adopts(job, runs)

        plan = planned(
            job, self.rows.cap[here.row], now_s, self.machines.scale, order=self.settings.order,
            horizon=self.settings.horizon, anew=here.anew, fits=fits,
        )  # fmt: skip
        here.late += job.target_s > before_s
        self.late += job.target_s > before_s
        here.anew = False
        self._to_plan.pop(here.name, None)
        return plan

    def _must_start(self, here: JobHere, must_run: Mapping[int, int]) -> None:
        ready = self._ready
        for group in here.job.ready():
            ready.must[ready.row_of[here.row, group]] = must_run.get(group, 0)

    def _start_must(self, selfish: list[JobHere], starts: list[Start], now_s: float) -> None:
        ready, must, rows = self._ready, self._ready.must, self._ready.rows()
        is_selfish = np.zeros(len(self.rows.number), np.bool_)
        is_selfish[[here.row for here in selfish]] = True
        if selfish:
            is_tetris = self.settings.order is Order.TETRIS
            jobs, scale = self.rows, self.machines.scale
            fill_caps(
                rows, ready.job, is_selfish, ready.demand, ready.left, ready.priority, jobs.cap, jobs.has, scale,
                is_tetris, must,
            )  # fmt: skip
        rows = rows[must[rows] > 0]
        if len(rows):
            machines = self._with_room(rows)
            if len(self._dues) > 1:
                # A job may always use one task's room, so a user's many jobs may use more than its share together, and
                # small jobs come first: up to their shares, users come before jobs.
                self._match(rows, machines, self.settings.must, starts, now_s, is_lent=False, owners=self._users_of())
                rows = rows[must[rows] > 0]
            self._match(rows, machines, self.settings.must, starts, now_s, is_lent=False)
            rows = rows[must[rows] > 0]
        self._hold(self._of_users_below_share(rows), now_s)
        if selfish:
            must[rows[is_selfish[ready.job[rows]]]] = 0

    def _with_room(self, rows: Indexes) -> Indexes:
        """Machines that may have room for tasks of these rows: those that have more than before, if none of the rows is
        new, and whatever found room before was started, too."""
        is_conserving = self._ahead is None and not self.settings.fairness and self.settings.may is not Rank.CAPACITY
        if not is_conserving or not self._new_rows.isdisjoint(rows.tolist()):
            return self.machines.all
        return np.array(sorted(self.machines.freed), np.int64)

    def _start_may(self, starts: list[Start], now_s: float) -> None:
        """Tasks that may run: on machines with more room than before any, and on others those that wait newly."""
        rows = self._left_out(self._ready.rows())
        rank = self.settings.may
        if self.settings.fairness or self._ahead is not None:
            self._match(rows, self.machines.all, rank, starts, now_s, is_lent=True)
            return
        freed = np.array(sorted(self.machines.freed), np.int64)
        if len(freed):
            self._match(rows, freed, rank, starts, now_s, is_lent=True)
        fresh = rows[np.isin(rows, list(self._new_rows))] if self._new_rows else rows[:0]
        fresh = fresh[self._ready.left[fresh] > 0]
        if len(fresh) and len(freed) < len(self.machines):
            self._match(fresh, self.machines.all, rank, starts, now_s, is_lent=True)

    def _left_out(self, rows: Indexes) -> Indexes:
        """Without jobs that have most of their share (Tetris' fairness)."""
        if not self.settings.fairness or not len(rows):
            return rows
        jobs = np.unique(self._ready.job[rows])
        has, cap = self.rows.has[jobs], self.rows.cap[jobs]
        parts = np.divide(has, cap, out=np.zeros_like(has), where=cap > 0).max(axis=1)
        kept = max(1, round((1 - self.settings.fairness) * len(jobs)))
        least = jobs[np.lexsort((self.rows.number[jobs], parts))][:kept]
        return rows[np.isin(self._ready.job[rows], least)]

    def _match(
        self,
        rows: Indexes,
        machines: Indexes,
        rank: Rank,
        starts: list[Start],
        now_s: float,
        *,
        is_lent: bool,
        owners: Owners | None = None,
    ) -> None:
        """Start tasks of these rows on these machines, in this order; of several owners, those first that have least of
        what they are entitled to."""
        if not len(rows):
            return
        ready, cluster = self._ready, self.machines
        fit = those_that_fit(cluster.free, machines, rows, ready.demand)
        if not len(fit):
            return
        bonus = self._bonus(rows, rank)
        rows, tiers = self._in_order(fit, rank)
        is_alike = rank in (Rank.PACK, Rank.TETRIS) or (
            self.settings.order is Order.TETRIS and rank is not Rank.CAPACITY
        )
        wanted = ready.left.copy() if is_lent else ready.must.copy()
        ahead = self._ahead
        # With plans to keep clear of, one at a time: each start changes what is ahead.
        row, machine, tasks = self._found if ahead is None else [column[:1] for column in self._found]
        while True:
            profile = NOTHING_AHEAD if ahead is None else ahead.profile
            steps = profile.steps if ahead is not None and is_lent else 0
            if owners is not None or rank in TASK_AFTER_TASK:
                count = match_fairly(
                    cluster.free, machines, cluster.held_for, rows, ready.demand, wanted, bonus, cluster.scale,
                    is_alike, ready.may_use, self._allowed, ready.wants, self._wanted, *(owners or self._owners(rank)),
                    profile.at_s, profile.row, profile.used, steps, profile.cap, now_s, ready.duration_s,
                    row, machine, tasks,
                )  # fmt: skip
            else:
                count = match_in_order(
                    cluster.free, machines, cluster.held_for, rows, tiers, ready.demand, wanted, bonus, cluster.scale,
                    is_alike, ready.may_use, self._allowed, ready.wants, self._wanted, profile.at_s, profile.row,
                    profile.used, steps, profile.cap, now_s, ready.duration_s, row, machine, tasks,
                )  # fmt: skip
            found = zip(row[:count].tolist(), machine[:count].tolist(), tasks[:count].tolist(), strict=True)
            for each in found:
                self._start(*each, starts, now_s, is_lent=is_lent)
            if count < len(row):
                return

    def _of_users_below_share(self, rows: Indexes) -> Indexes:
        """Those of the rows whose users have less than their share: machines are kept for no others."""
        if len(self._dues) < 2 or not len(rows):
            return rows
        _, has, due, _ = self._users_of()
        parts = np.divide(has, due, out=np.zeros_like(has), where=due > 0).max(axis=1)
        is_below = parts < 1 - ROUNDING
        found: Indexes = rows[is_below[self._user_of[self._ready.job[rows]]]]
        return found

    def _users_of(self) -> Owners:
        """As `_owners`, of users, who have their shares at most."""
        has = np.zeros((len(self._dues), len(self.machines.total)))
        np.add.at(has, self._user_of, self.rows.has)
        due = self._dues[:, None] * self.machines.total
        return self._user_of[self._ready.job], has, due, due

    def _owners(self, rank: Rank) -> Owners:
        """Whose each row is; what these have, are entitled to, and may have at most."""
        ready, jobs = self._ready, self.rows
        if rank is Rank.DRF:
            return ready.job, jobs.has.copy(), jobs.cap, NO_MOST
        queue = np.zeros(len(jobs.number), np.int64)
        for row, here in self._by_row.items():
            queue[row] = self._queues.number(here.user)
        has = np.zeros((len(self._queues), len(self.machines.total)))
        np.add.at(has, queue, jobs.has)
        guaranteed, most = self._queues.parts()
        total = self.machines.total
        return queue[ready.job], has, guaranteed[:, None] * total, most[:, None] * total

    def _in_order(self, rows: Indexes, rank: Rank) -> tuple[Indexes, Indexes]:
        """The rows, and where tiers begin: a tier a job if these come one after the other, else one of all."""
        if rank not in JOB_AFTER_JOB:
            return rows, np.array([0, len(rows)])
        size = {Rank.SRTF: self.rows.left, Rank.SJF: self.rows.work, Rank.SJF_BY_PATH: self.rows.path_s}[rank]
        job = self._ready.job
        if rank is Rank.SRTF:
            self._measure_left()
        if len(rows) > 1:
            rows = rows[np.argsort(size[job[rows]], kind="stable")]
        return rows, bounds_of(rows, job)

    def _demand_of(self, dag: Dag) -> Vector:
        found: Vector = demand_vectors((dag.work * self.machines.unit)[None, :])[0]
        return found

    def _measure(self, here: JobHere) -> None:
        """How large the job is."""
        dag, row, rows = here.job.dag, here.row, self.rows
        rows.work[row], rows.path_s[row] = (dag.work * self.machines.unit).max(), dag.critical_path_s
        rows.mean_demand[row] = dag.demand.mean(axis=0)
        self._unmeasured[here.name] = here

    def _measure_left(self) -> None:
        """How large what is left of jobs is."""
        for here in self._unmeasured.values():
            self.rows.left[here.row] = here.job.remaining_work(self.machines.unit)
        self._unmeasured.clear()

    def _bonus(self, rows: Indexes, rank: Rank) -> Vector:
        """By row: what is added to how alike its demand is to what is free."""
        ready, jobs, cluster = self._ready, self.rows, self.machines
        if rank is Rank.CAPACITY:
            return -ready.number.astype(np.float64)
        if rank not in (Rank.PACK, Rank.TETRIS):
            return ready.priority
        bonus = np.zeros(len(ready.left))
        if rank is Rank.TETRIS:
            self._measure_left()
            small_job_bonus(rows, ready.job, jobs.left, jobs.mean_demand, cluster.free, cluster.scale, bonus)
        return bonus

    def _start(self, row: int, machine: int, tasks: int, starts: list[Start], now_s: float, *, is_lent: bool) -> None:
        """Note what has been matched."""
        ready = self._ready
        here, group = self._by_row[int(ready.job[row])], int(ready.group[row])
        job = here.job
        demand = job.dag.demand[group]
        end_s = job.start(group, tasks, now_s) if self._ahead is None else self._ahead.start(job, group, tasks)
        self.rows.has[here.row] += tasks * demand
        if ready.started(row, tasks):
            self._row_gone(row)
        self._unmeasured[here.name] = here
        starts.append(Start(here.name, group, self.machines.names[machine], tasks, end_s, is_lent))

    # ---- tasks that fit nowhere ----------------------------------------------------------------------

    def _hold(self, rows: Indexes, now_s: float) -> None:
        """Tasks that must run fit nowhere: keep a machine for each group of them that has waited for as long as its
        tasks take, so that lesser tasks do not get in its way for ever."""
        machines, since_s = self.machines, self._ready.unfit_since_s
        if not len(rows) and not len(self._unfit) and not machines.holds:
            return
        self.unfit += len(rows)
        is_unfit = np.zeros(len(since_s), np.bool_)
        is_unfit[rows] = True
        for row in [row for row in machines.holds if not is_unfit[row]]:
            machines.release(row)
        since_s[self._unfit[~is_unfit[self._unfit]]] = np.inf
        since_s[rows[since_s[rows] == np.inf]] = now_s
        self._unfit = rows
        if not machines.may_hold:
            return
        for row in np.sort(rows[since_s[rows] + self._ready.duration_s[rows] <= now_s]).tolist():
            if row not in machines.holds:
                machines.hold(row, self._ready.demand[row], self._limited.get(row))
                if not machines.may_hold:
                    return


NOTHING_AHEAD = Profile(np.zeros(0))
