"""The flow plane: a scheduler that places tasks by solving the whole cluster as a flow network, round after round.

It leads: one such scheduler has all placed tasks of a cluster, and knows what they hold. What happens is gathered. Once
no round is under way, the changes since the one before go to a thread, which applies them to the network
(`ClusterNetwork`), solves that, and answers where tasks go. The answer is checked against what has happened meanwhile
(`placing_checks`); what stands is sent to the nodes' lanes, what does not is offered again in the next round, at once.
While tasks wait there is a round each `flow_age_s` even if nothing happens, as waiting gets dearer; else there is none.

A round that fails (a policy of somebody's own may raise) is lost, and no more: the tasks wait on, the network is built
anew, and the next try comes after a pause.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from scheduler.book.jobs import UNPLACED
from scheduler.book.validation import ignore_idle
from scheduler.book.waiting import BACKOFF_MAX_S
from scheduler.flow.cluster_changes import ClusterChanges, Network, Placed
from scheduler.flow.cluster_view import ClusterView
from scheduler.flow.gang_hold import GangHold
from scheduler.flow.gang_room import why_gang_is_too_large, why_gang_never_fits
from scheduler.flow.limits_now import why_limited
from scheduler.flow.placing_checks import still_fitting
from scheduler.flow.policies.policy import Group, Task
from scheduler.flow.profiles import Profiles
from scheduler.flow.reachable import Reachable, has_own_kind
from scheduler.flow.room_now import RoomNow
from scheduler.flow.running_tasks import RunningTasks
from scheduler.flow.set_aside import SetAside
from scheduler.flow.solvers.stopping import stop_flag
from scheduler.flow.stage_limits import StageRelations, group_of, has_limits, near_of
from scheduler.flow.stage_plan import (
    StagePlan,
    compare,
    number_of,
    stage_name,
    tasks_for_network,
    unplaced_mask,
    withdrawn,
)
from scheduler.flow.traffic import Traffic
from scheduler.flow.why_waiting import explained, written
from scheduler.plane import RoundFigures, WhyWaiting
from scheduler.waiting_for_nodes import look_for_nodes, nodes_changed
from sparrow_py.counted import agreeing, counted
from sparrow_py.job import CANCELLED, LOST
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import Attempt, StageState
    from scheduler.book.nodes import Node
    from scheduler.plane import BookForPlane, Handler

RETRY_S, RETRY_MAX_S = 0.1, 5.0
"""The first pause after a round that failed, which doubles up to the longest."""
KEPT_SHARE = 4
"""One part in so many of the room in the network is kept for users who have less than that there."""
STALE_ROUNDS_MAX = 3
"""Rounds in a row of which nothing stood that are followed by others at once; then there are pauses."""


class Round:
    """What a thread does of a round."""

    def __init__(self, network: Network, changes: ClusterChanges) -> None:
        self._network = network
        self._changes = changes
        self._flag = stop_flag()

    def __call__(self) -> Placed:
        """Apply the changes and solve."""
        return self._network.round(self._changes, self._flag)

    def stop(self) -> None:
        """The answer is not needed any more; from any thread."""
        self._flag[0] = 1


class FlowPlane:
    """See `scheduler.plane.Plane`, and the module's docstring. `network_of` makes a network that knows nothing."""

    name = m.FLOW
    has_leader = True
    counts_slots = True
    lending = None
    hears_reports = True

    def __init__(self, book: BookForPlane, network_of: Callable[[], Network]) -> None:
        self._book = book
        self.network_of = network_of
        self._network: Network | None = None
        self._profiles = Profiles()
        self._view = ClusterView(book, self._profiles, keeps_running=book.options.flow_preemption)
        self._traffic = Traffic(self._profiles)
        self._reachable = Reachable(book, self._view)
        self._running = RunningTasks(book)
        self._aside = SetAside(book, self._try_again)
        self._hold = GangHold(book, self._view)
        self._numbers = itertools.count(1)
        self._waiting: dict[StageState, None] = {}
        """Stages with tasks that wait for a place."""
        self._in_network: dict[int, StageState] = {}
        """By number: stages of which the network has tasks."""
        self._looked_at: dict[StageState, None] = {}
        """Stages whose tasks are to be compared with what the network has."""
        self._offered = 0
        """Tasks that the network has."""
        self._offered_of: Counter[str] = Counter()
        """The same, by user."""
        self._no_room = False
        """Whether tasks were left out of the round for lack of room in the network."""
        self._gone: list[str] = []
        """Names of tasks of jobs that have left, as the network is still to be told."""
        self._groups: dict[str, Group] = {}
        """As the network was told, of stages that are here."""
        self._groups_gone: dict[str, None] = {}
        """Of stages that were told and have left, as the network is still to be told."""
        self._round: int | None = None
        """The number of the round that is under way."""
        self._news = False
        """Whether something happened since the last round by which a task may find a place."""
        self._timer_at_s: float | None = None
        """When the next round is due if nothing happens."""
        self._pause_s = 0.0
        self._not_before_s = 0.0
        """After a round that failed."""
        self._stale_rounds = 0
        self.rounds = RoundFigures()
        self.messages: dict[type, Handler] = {m.Idle: ignore_idle}

    # ---- what the book tells -----------------------------------------------------------------

    def stage_came(self, stage: StageState) -> None:
        first = stage.job.stages[0]
        relations = StageRelations(stage.job) if stage is first else first.plan.relations
        stage.plan = StagePlan(next(self._numbers), relations)

    def tasks_unplaced(self, stage: StageState, now_s: float) -> None:
        """They are placed in a round."""
        if not stage.unplaced or not stage.open:
            return
        if stage.reserved_at_s is None:
            stage.reserved_at_s = now_s
        self._waiting[stage] = None
        self._look_at(stage)
        look_for_nodes(self._book, stage, now_s)

    def tasks_withdrawn(self, stage: StageState) -> None:
        self._look_at(stage)

    def none_unplaced(self, stage: StageState, now_s: float) -> None:
        stage.search.no_node_since_s = None
        self._leave(stage)

    def stage_left(self, stage: StageState, now_s: float) -> None:
        self._leave(stage)
        self._running.stage_left(stage)
        for attempt_id in stage.attempts.values():  # They may still run, and be of no concern to us.
            self._node_changed(stage.job.attempts[attempt_id].node_id)

    def memories_known(self, stage: StageState, memories: Collection[str], now_s: float) -> None:
        self._news = True

    def adopted(self, attempt: Attempt) -> None:
        if self._running.keeps(attempt.stage):
            self._running.adopted(attempt)
        self._view.adopted(attempt)
        self._news = True

    def attempt_reported(self, attempt: Attempt, report: m.Report) -> None:
        stage = attempt.stage
        if report.service_s is not None and report.service_s >= 0 and report.status is not CANCELLED:
            name = stage.job.user, stage.spec.app, stage_name(stage)
            self._profiles.ran(*name, report.service_s)
            if report.used is not None:
                self._profiles.used(*name, msgspec.structs.asdict(report.used))
        self._attempt_ended(attempt)

    def handed_back(self, attempt: Attempt, node: Node, now_s: float) -> None:
        """Another node gets the task, as long as this one would hardly take it."""
        stage = attempt.stage
        self._book.leave_alone(stage, node.id, now_s)
        self._reachable.leave_alone(stage.kind, node.id, now_s + BACKOFF_MAX_S)
        # After the node has been forgiven, as timers of equal times go in the order in which they were set.
        self._book.at(now_s + BACKOFF_MAX_S, self._forgive)
        self._attempt_ended(attempt)

    def preempted(self, attempt: Attempt, node: Node, service_s: float, now_s: float) -> None:
        self._attempt_ended(attempt)

    def _attempt_ended(self, attempt: Attempt) -> None:
        self._running.ended(attempt)
        self._node_changed(attempt.node_id)

    def _forgive(self, now_s: float) -> None:
        self._reachable.forgive(now_s)
        self._news = True

    def _try_again(self, stage: StageState) -> None:
        """Its time aside is over."""
        if stage in self._waiting:
            self._look_at(stage)

    def _look_at(self, stage: StageState) -> None:
        self._looked_at[stage] = None
        self._news = True

    # ---- what nodes do -----------------------------------------------------------------------

    def node_up(self, node: Node, now_s: float) -> None:
        for stage in self._waiting:
            stage.search.barred_by.pop(node.id, None)  # Its operator may have changed that.
        self._node_changed(node.id)
        self._nodes_changed(now_s)

    def node_state(self, node: Node, now_s: float) -> None:
        self.node_up(node, now_s)

    def node_load(self, node: Node, now_s: float) -> None:
        self._traffic.told(node)
        if self._view.load_told(node):  # Else what is measured there is told with what happens next.
            self._news = True

    def node_lost(self, node: Node) -> tuple[StageState, ...]:
        self._view.gone(node.id)
        self._traffic.gone(node.id)
        for attempt in node.attempts:
            self._running.ended(attempt)
        return ()

    def node_down(self, node: Node, now_s: float) -> None:
        self._nodes_changed(now_s)

    def oldest_wait_s(self, now_s: float) -> float:
        since_s = [min(stage.plan.since_s.values(), default=now_s) for stage in self._waiting]
        return max(0.0, now_s - min(since_s, default=now_s))

    def explain(self, stages: Sequence[StageState], now_s: float) -> list[Callable[[], WhyWaiting]]:
        """The costs of the task of each that the network has had for longest."""
        room = RoomNow(self._book, self._view)
        return [self._explain(stage, room, now_s) for stage in stages]

    def _explain(self, stage: StageState, room: RoomNow, now_s: float) -> Callable[[], WhyWaiting]:
        reasons, plan, network = self._reasons(stage, room, now_s), stage.plan, self._network
        waiting = [(since_s, task) for task, since_s in plan.since_s.items() if stage.states[task] == UNPLACED]
        if network is None or not waiting:
            return lambda: WhyWaiting(reasons)
        task = min(waiting)[1]
        return partial(explained, network, plan.name(task), stage.first + task, reasons)

    def _reasons(self, stage: StageState, room: RoomNow, now_s: float) -> list[str]:
        reasons, plan, options = [], stage.plan, self._book.options
        if not self._book.leads():
            reasons.append("this scheduler does not lead its plane, and places nothing")
        elif self._network is None:
            failed = (
                f"; {counted(self.rounds.failed, 'round', 'have')} failed, as the log says"
                if self.rounds.failed
                else ""
            )
            reasons.append(f"no round has been solved yet{failed}")
        why_not = ""
        if stage.spec.gang and not stage.complete:
            why_not = "a gang waits until all of it is here"
        elif stage.spec.gang:
            why_not = self._why_too_large(stage) or self._why_never_fits(stage)
        if why_not:
            reasons.append(why_not)
        if why_aside := self._aside.why(stage, now_s):
            return [*reasons, why_aside]
        if what_is_free := room.for_stage(stage):
            reasons.append(what_is_free)
        if not why_not:
            reasons += why_limited(self._book, self._view, stage)
        if kept := self._hold.why(stage):
            reasons.append(kept)
        outside = stage.unplaced - len(plan.since_s)
        if outside > 0 and self._no_room:
            wait = agreeing(outside, "wait")
            reasons.append(f"{outside:,} of its tasks {wait} for room: flow_tasks_max = {options.flow_tasks_max:,}")
        if why_outside := self._reachable.why_outside(stage):
            reasons.append(why_outside)
        return reasons

    def live_reservations(self, node_id: str) -> int:
        return 0

    def _node_changed(self, node_id: str) -> None:
        self._view.changed(node_id)
        self._news = True

    def _nodes_changed(self, now_s: float) -> None:
        """Stages may have nodes that had none, or none any more."""
        self._news = True
        self._view.version += 1  # The kinds' nodes are others, even if all of them stay.
        nodes_changed(self._book, self._waiting, now_s)

    # ---- rounds begin ------------------------------------------------------------------------

    def pump(self, now_s: float) -> None:
        if self._round is not None or not self._news or now_s < self._not_before_s:
            return
        if not self._waiting and not self._running:
            return
        if self._book.leads():
            self._begin_round(now_s)

    def lead_changed(self, leads: bool, now_s: float) -> None:
        """Rounds begin, or there are none any more."""
        self._news = True

    def _begin_round(self, now_s: float) -> None:
        self._refuse_gangs(now_s)
        self._keep_slots_for_gang(now_s)
        self._news = False
        if not self._waiting and not self._running:
            return
        if self._network is None:
            self._network = self.network_of()
        self._round = self._book.solve(Round(self._network, self._changes(now_s)))

    def _changes(self, now_s: float) -> ClusterChanges:
        """What has happened since the round before. (Whatever the network is told is worked out before the kinds are,
        as tasks may be of new ones.)"""
        machines_gone, machines = self._view.take_changes()
        gone, tasks = self._gone, list[Task]()
        groups: dict[str, Group | None] = dict.fromkeys(self._groups_gone)  # Some may be told again below.
        self._gone, self._groups_gone, self._no_room = [], {}, False
        for stage, unknown in self._running.take_unknown():
            tasks += tasks_for_network(stage, unknown, self._profiles, self._reachable.kind_of)
        ended, run = self._running.take_news()
        gone += ended
        for stage in self._waiting:
            self._tell_limits(stage, groups)
            if stage.plan.own_kind != has_own_kind(stage):  # Another job has come that avoids this one, say.
                self._looked_at[stage] = None
        for stage in list(self._looked_at):
            names, new = self._compare(stage, now_s)
            gone += names
            tasks += tasks_for_network(stage, new, self._profiles, self._reachable.kind_of)
            if stage.spec.gang:
                self._tell_limits(stage, groups)
        users = {stage.job.user for stage in self._waiting} | self._running.users()
        return ClusterChanges(
            machines_gone=machines_gone,
            machines=machines,
            kinds=self._reachable.changes(),
            tasks_gone=gone,
            tasks=tasks,
            tasks_run=run,
            shares=self._view.shares(users),
            now_s=now_s,
            groups=groups,
        )

    def _compare(self, stage: StageState, now_s: float) -> tuple[list[str], list[int]]:
        """Tasks of the stage that the network is told to be gone, and those that are new."""
        plan, spec = stage.plan, stage.spec
        names: list[str] = []
        own = has_own_kind(stage)
        if plan.own_kind != own or stage in self._aside:  # All its tasks are of other kinds, or are to wait outside.
            names, plan.own_kind = withdrawn(stage), own
            self._count_offered(stage, -len(names))
        most = self._room_for(stage)
        if spec.gang and not (stage.complete and stage.unplaced <= most):
            most = 0
        more_names, new = compare(stage, most, now_s)
        self._count_offered(stage, len(new) - len(more_names))
        if len(plan.since_s) >= stage.unplaced:
            del self._looked_at[stage]  # Else the rest follows when there is room.
        elif stage not in self._aside and self._book.nodes.eligible(stage.kind):
            self._no_room = True
        if plan.since_s:
            self._in_network[plan.number] = stage
        else:
            self._in_network.pop(plan.number, None)
        return names + more_names, new

    def _room_for(self, stage: StageState) -> int:
        """So many of the stage's tasks the network may have: none if no node may run them, or the stage is set aside. A
        quarter of the room is kept for users who have less than that there, so that nobody fills it for all."""
        if stage in self._aside or not self._book.nodes.eligible(stage.kind):
            return 0
        here, most = len(stage.plan.since_s), self._book.options.flow_tasks_max
        free = most - (self._offered - here)
        kept = max(1, most // KEPT_SHARE)
        return max(0, min(free, max(kept - (self._offered_of[stage.job.user] - here), free - kept)))

    def _count_offered(self, stage: StageState, change: int) -> None:
        """The network has so many tasks of the stage more, or less."""
        self._offered += change
        self._offered_of[stage.job.user] += change
        if not self._offered_of[stage.job.user]:
            del self._offered_of[stage.job.user]

    def _tell_limits(self, stage: StageState, groups: dict[str, Group | None]) -> None:
        """Of the stage, and of the one that it is to be near."""
        if not has_limits(stage):
            return
        near = near_of(stage)
        for one in (stage, near) if near is not None else (stage,):
            name, group = str(one.plan.number), group_of(one)
            if self._groups.get(name) != group:
                self._groups[name] = groups[name] = group

    def _leave(self, stage: StageState) -> None:
        """No task of the stage is to be placed."""
        self._waiting.pop(stage, None)
        self._looked_at.pop(stage, None)
        self._aside.forget(stage)
        if self._hold.forget(stage):
            self._news = True  # Others may have the slots.
        self._reachable.stage_left(stage)
        plan, near = stage.plan, near_of(stage)
        if plan.since_s:
            names = withdrawn(stage)
            self._count_offered(stage, -len(names))
            self._gone += names
        plan.before_s.clear()
        self._in_network.pop(plan.number, None)
        for one in (stage, near):
            if one is not None and self._groups.pop(name := str(one.plan.number), None) is not None:
                self._groups_gone[name] = None

    def _forget_network(self) -> None:
        """The network is to be built anew, from what we know."""
        self._network = None
        self._view.forget_told()
        self._running.forget_told()
        self._reachable.forget_told()
        self._groups.clear()
        self._groups_gone.clear()
        self._gone.clear()
        for stage in self._in_network.values():
            withdrawn(stage)
        self._in_network.clear()
        self._offered = 0
        self._offered_of.clear()
        self._looked_at.update(self._waiting)

    # ---- and end -----------------------------------------------------------------------------

    def solved(self, number: int, answer: Placed | None, now_s: float) -> None:
        if number != self._round:
            return
        self._round = None
        if answer is None:
            self._failed(now_s)
        else:
            self._ended(answer, now_s)
        if self._waiting:
            self._wake_at(now_s + self._book.options.flow_age_s)

    def _failed(self, now_s: float) -> None:
        self.rounds.failed += 1
        self._forget_network()
        self._pause(now_s)

    def _pause(self, now_s: float) -> None:
        """No round before some time has passed, which gets longer."""
        self._pause_s = min(self._pause_s * 2 or RETRY_S, RETRY_MAX_S)
        self._not_before_s = now_s + self._pause_s
        self._news = True
        self._book.at(self._not_before_s, lambda _: None)  # That `pump` is called then.

    def _ended(self, answer: Placed, now_s: float) -> None:
        self.rounds.solved(answer.solver, answer.nodes, answer.arcs)
        placed = stale = 0
        self._set_aside(answer, now_s)
        if self._book.leads():
            placements, moving = self._running.take_out(answer.placed)
            self._running.stop([name for name in (*answer.stopped, *moving) if name not in answer.mistakes])
            placed, stale = self._place(placements, now_s)
        if self._running.make_room:  # What does not stand yet does then, which is news.
            stale = 0
        self.rounds.stale += stale
        self._news = self._news or stale > 0 or (placed > 0 and self._no_room)  # Others have room now.
        self._stale_rounds = self._stale_rounds + 1 if stale and not placed else 0
        if self._stale_rounds >= STALE_ROUNDS_MAX:
            self._pause(now_s)
        else:
            self._pause_s = 0.0

    def _set_aside(self, answer: Placed, now_s: float) -> None:
        """Stages of whose tasks the policy got something wrong."""
        for name, mistake in answer.mistakes.items():
            stage = self._in_network.get(number_of(name)) or self._running.stage_of(name)
            if stage is not None and stage in self._waiting and stage not in self._aside:
                self._aside.add(stage, mistake, now_s)
                self._look_at(stage)

    def _place(self, placements: Sequence[tuple[str, str]], now_s: float) -> tuple[int, int]:
        """Send what may be sent. How many tasks that were, and how many others."""
        placed = 0
        for stage, places in self._by_stage(placements):
            fitting = still_fitting(self._book, self._view, stage, places)
            for task, node_id in fitting:
                self._book.place(stage, task, self._book.nodes[node_id])
                if self._running.keeps(stage):
                    self._begin_to_run(stage, task, node_id)
            for _, node_id in places:
                self._view.changed(node_id)
            if stage in self._waiting:
                self._looked_at[stage] = None
            placed += len(fitting)
            if fitting:
                self._book.count_placed(stage, len(fitting))
                if not stage.unplaced:
                    self.none_unplaced(stage, now_s)
        return placed, len(placements) - placed

    def _begin_to_run(self, stage: StageState, task: int, node_id: str) -> None:
        """The task stays in the network, where it waits no more."""
        plan = stage.plan
        plan.waits_no_more(task)
        self._count_offered(stage, -1)
        self._running.began(stage, task, node_id)

    def _by_stage(self, placements: Sequence[tuple[str, str]]) -> list[tuple[StageState, list[tuple[int, str]]]]:
        """Stages that are to be near others come after these."""
        found: dict[StageState, list[tuple[int, str]]] = {}
        for name, node_id in placements:
            number, _, task = name.partition(".")
            stage = self._in_network.get(int(number))
            # Else it was withdrawn meanwhile; or it ran when the round began, which was in vain, and is as new again.
            if stage is not None and stage not in self._aside and int(task) in stage.plan.since_s:
                found.setdefault(stage, []).append((int(task), node_id))
        return sorted(found.items(), key=lambda item: bool(item[0].spec.together_with))

    def _refuse_gangs(self, now_s: float) -> None:
        """Gangs that would not fit even if nothing ran are lost: at once, as a job that no node may run is refused; or
        after a while, if their job says so, or if they did fit before nodes were gone. Those that are too large
        whatever nodes come are lost at once."""
        for stage in [one for one in self._waiting if one.spec.gang and one.complete]:
            plan, version = stage.plan, self._view.version
            if plan.fitted_version == version:
                continue
            if too_large := self._why_too_large(stage):
                self._book.settle_unplaced(stage, stage.unplaced_tasks(), LOST, too_large, now_s)
                continue
            reason = self._why_never_fits(stage)
            if not reason:
                plan.fits_not_since_s, plan.fitted_version = None, version
                continue
            if plan.fits_not_since_s is None:
                plan.fits_not_since_s = now_s
            patience_s = stage.job.wait_for_nodes_s
            if patience_s is None:
                patience_s = self._book.options.wait_for_nodes_s if plan.fitted_version is not None else 0.0
            if now_s >= plan.fits_not_since_s + patience_s:
                self._book.settle_unplaced(stage, stage.unplaced_tasks(), LOST, reason, now_s)

    def _keep_slots_for_gang(self, now_s: float) -> None:
        """Of the gangs that wait one may have slots kept free. If it has all that it needs it starts, without a round:
        what others would pay for its slots was weighed for long enough."""
        gangs = [stage for stage in self._waiting if stage.spec.gang and self._is_offered_whole(stage)]
        self._hold.choose(gangs, {stage.job.user for stage in self._waiting} if gangs else (), now_s)
        found = self._hold.places()
        if found is not None:
            stage, places = found
            self._hold.started(stage)
            self._place([(stage.plan.name(task), node_id) for task, node_id in places], now_s)

    def _is_offered_whole(self, stage: StageState) -> bool:
        """Whether the network has all tasks of a gang, and there would be places for it if nothing ran."""
        plan = stage.plan
        return stage.complete and 0 < stage.unplaced == len(plan.since_s) and plan.fits_not_since_s is None

    def _why_too_large(self, stage: StageState) -> str:
        most = self._book.options.flow_tasks_max
        kept = max(1, most // KEPT_SHARE)
        return why_gang_is_too_large(stage, max(kept, most - kept))

    def _why_never_fits(self, stage: StageState) -> str:
        return why_gang_never_fits(stage, self._book.nodes, self._view)

    # ---- time --------------------------------------------------------------------------------

    def _wake_at(self, at_s: float) -> None:
        """A round is due at that time, if tasks wait then."""
        if self._timer_at_s is None:
            self._timer_at_s = at_s
            self._book.at(at_s, self._woken)

    def _woken(self, now_s: float) -> None:
        self._timer_at_s = None
        self._news = self._news or bool(self._waiting)

    # ---- invariants --------------------------------------------------------------------------

    def dump(self) -> Callable[[], str]:
        """The problem of the last round, in DIMACS' format, or nothing; to be called where problems are solved."""
        network = self._network
        return partial(written, network) if network is not None else str

    def problem(self, stage: StageState) -> str | None:
        wanted = stage.unplaced > 0 and stage.open
        if (stage in self._waiting) != wanted:
            return f"{stage.unplaced} unplaced tasks, and it waits for a round: {not wanted}"
        if wanted and stage not in self._looked_at:
            missing = [
                task for task, waits in enumerate(unplaced_mask(stage)) if waits and task not in stage.plan.since_s
            ]
            if missing:
                return f"its unplaced tasks {missing[:5]} are not in the network, and nobody looks"
        if problem := self._running.problem(stage):
            return problem
        nodes = self._book.nodes.eligible(stage.kind)
        if wanted and not nodes and not self._book.is_waiting(stage):
            return f"no node may run its {stage.unplaced} unplaced tasks, and it does not wait for one"
        return None

    def problem_of_all(self) -> str | None:
        offered = sum(len(stage.plan.since_s) for stage in self._in_network.values())
        if offered != self._offered or offered != self._offered_of.total():
            return f"the network has {offered} tasks, and {self._offered} are counted"
        if self._view.kept_for is not None and self._view.kept_for not in self._waiting:
            return "slots are kept for a gang that does not wait"
        waits = self._round is not None or self._news or self._timer_at_s is not None
        if self._waiting and self._book.leads() and not waits:
            return "tasks wait, and no round is due"
        return None

    def left_over(self) -> str:
        return f"waiting stages {self._waiting}" if self._waiting or self._in_network else ""
