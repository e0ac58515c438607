"""Slots that are kept free for a gang that has waited for long.

The network places a gang when there are slots for all of it at once, which beside a stream of single tasks may never
be: each slot that gets free is taken at once. So for the gang that has waited for longest, and for at least
`flow_gang_wait_s`, nodes are chosen at which others get no further slots until it starts. That is one gang at a time,
and no more slots than it needs. A user whose share of slots such gangs exceed has one of them at a time.

Slots are kept for as long at most as a gang has to wait for that, and after they were in vain not soon again
(`hold_turns`). They are kept only if the gang could start were all others' tasks over: what its own user's tasks have
counts as taken, unless such tasks are known to take no longer than slots are kept.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scheduler.flow.cluster_view import rack_of
from scheduler.flow.gang_room import places_at
from scheduler.flow.hold_turns import HoldTurns
from scheduler.flow.placing_checks import places_of_all
from scheduler.flow.stage_limits import nodes_near
from scheduler.lane_room import takes_tasks
from sparrow_py.counted import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from scheduler.book.jobs import Attempt, StageState
    from scheduler.book.nodes import Node
    from scheduler.flow.cluster_view import ClusterView
    from scheduler.flow.placing_checks import Places
    from scheduler.plane import BookForPlane


TRIED_MAX = 16
"""Gangs for which nodes are sought in a round."""


class GangHold:
    """See the module's docstring. What is kept stands in the view (`ClusterView.keep`)."""

    def __init__(self, book: BookForPlane, view: ClusterView) -> None:
        self._book = book
        self._view = view
        self._started: dict[StageState, None] = {}
        """Gangs that have started so, and run."""
        self._turns = HoldTurns(book.options.flow_gang_wait_s)
        self._held: tuple[str, int, float] | None = None
        """Of the gang for which slots are kept, or were after the last round: user, tasks, since when that was not told
        to the turns."""
        self._now_s = 0.0
        """Of the last round."""

    def choose(self, gangs: Iterable[StageState], users: Iterable[str], now_s: float) -> None:
        """Keep slots for one of these gangs, all of whose tasks wait in the network, or for none. `users`: who has
        tasks that wait."""
        self._charge(now_s)
        wait_s = self._book.options.flow_gang_wait_s
        old = [
            (-stage.priority, since_s, stage.plan.number, stage)
            for stage in gangs
            if now_s - (since_s := min(stage.plan.since_s.values())) >= wait_s
            and self._turns.may_hold(stage.job.user, now_s)
        ]
        due = self._due(users) if old else {}
        running = self._running() if old else Counter()
        oldest = [
            stage
            for _, _, _, stage in sorted(old)
            if not running[user := stage.job.user] or running[user] + stage.unplaced <= due[user]
        ]
        oldest = oldest[:TRIED_MAX]
        staying = self._staying({stage.job.user for stage in oldest}) if oldest else {}
        for stage in oldest:
            if slots := self._slots(stage, staying.get(stage.job.user, {})):
                self._view.keep(stage, slots)
                self._held = stage.job.user, stage.unplaced, now_s
                return
        self.release()

    def _charge(self, now_s: float) -> None:
        """Tell the turns for how long slots were kept since the last round."""
        self._now_s = now_s
        if self._held is not None:
            user, tasks, since_s = self._held
            self._held = None
            self._turns.held(user, tasks, min(now_s - since_s, self._turns.hold_s), now_s)

    def places(self) -> tuple[StageState, Places] | None:
        """The gang for which slots are kept, and where its tasks go, if all of them can start now."""
        stage, kept = self._view.kept_for, self._view.kept
        if stage is None:
            return None
        places = places_of_all(self._book, self._view, stage, sorted(kept))
        return (stage, places) if places else None

    def started(self, stage: StageState) -> None:
        """The gang has been placed where slots were kept for it."""
        self._started[stage] = None
        self._held = None
        self._turns.started(stage.job.user, stage.unplaced)

    def forget(self, stage: StageState) -> bool:
        """Nothing of the stage is to be placed. Whether slots were kept for it."""
        held = self._view.kept_for is stage
        if held:
            self.release()
        return held

    def release(self) -> None:
        """Keep nothing."""
        self._view.keep(None, {})

    def why(self, stage: StageState) -> str:
        """What is kept for the stage, or for another one, in words."""
        view = self._view
        if view.kept_for is None:
            if stage.spec.gang and not self._turns.may_hold(stage.job.user, self._now_s):
                return "slots were kept free for a gang in vain, so none are for a while"
            return ""
        nodes = counted(len(view.kept), "node")
        if stage is view.kept_for:
            return f"slots are kept free for it at {nodes} as they get free"
        size = counted(view.kept_for.unplaced, "task")
        return f"slots at {nodes} are kept for a gang of {size} that has waited for long"

    def _due(self, users: Iterable[str]) -> dict[str, float]:
        """These users' shares of all slots, by their weights."""
        slots = sum(self._view.lane_slots(node) for node in self._book.nodes.all() if takes_tasks(node))
        weights = {user: self._book.options.weight(user) for user in users}
        total = sum(weights.values())
        return {user: slots * weight / total for user, weight in weights.items()}

    def _running(self) -> Counter[str]:
        """By user: tasks of gangs that have started so."""
        is_here = self._book.is_here
        self._started = {stage: None for stage in self._started if stage.attempts and is_here(stage.job)}
        running: Counter[str] = Counter()
        for stage in self._started:
            running[stage.job.user] += len(stage.attempts)
        return running

    def _staying(self, users: Collection[str]) -> dict[str, dict[str, list[Attempt]]]:
        """Running tasks of these users, by user and node, but for those that are known to take no longer than slots are
        kept for a gang."""
        hold_s = self._turns.hold_s
        found: dict[str, dict[str, list[Attempt]]] = {}
        durations_s: dict[StageState, float | None] = {}
        for node in self._book.nodes.all():
            for attempt in node.attempts:
                stage = attempt.stage
                if stage.job.user not in users:
                    continue
                if stage not in durations_s:
                    durations_s[stage] = self._view.duration_s(stage)
                duration_s = durations_s[stage]
                if duration_s is None or duration_s > hold_s:
                    found.setdefault(stage.job.user, {}).setdefault(node.id, []).append(attempt)
        return found

    def _slots(self, stage: StageState, staying: Mapping[str, Collection[Attempt]]) -> dict[str, int]:
        """How many slots to keep at which nodes, so that all of the gang fits there beside what stays; nothing if it
        cannot."""
        view, spec, left = self._view, stage.spec, stage.unplaced
        in_rack: Counter[str] = Counter()
        slots: dict[str, int] = {}
        for node in self._candidates(stage):
            places = min(left, places_at(stage, node, view, staying.get(node.id, ())))
            if spec.max_per_rack is not None:
                places = min(places, spec.max_per_rack - in_rack[rack_of(node)])
            if places > 0:
                # What a task demands may be held by more tasks than one: then all of them have to end.
                slots[node.id] = view.lane_slots(node) if stage.kind.demand else places
                in_rack[rack_of(node)] += places
                left -= places
            if not left:
                return slots
        return {}

    def _candidates(self, stage: StageState) -> list[Node]:
        """Nodes that may take tasks of the stage, the best first: those at which slots are kept for it already, then
        those with the most free ones."""
        book, view, only = self._book, self._view, nodes_near(stage)
        kept = view.kept if view.kept_for is stage else {}
        nodes = [book.nodes[node_id] for node_id in book.nodes_now(stage) if only is None or node_id in only]
        fitting = [node for node in nodes if takes_tasks(node) and book.may_start_at(stage.job, node)]
        return sorted(fitting, key=lambda node: (node.id not in kept, -view.slots_free(node), node.id))
