"""Which machines tasks may go to, as the network is told: by kind. Stages of equal constraints are of one kind; a stage
to which more applies than these (jobs that it avoids, nodes that its client must know before, or that do not want its
tasks for good) has one of its own, whose machines are looked up before each round. Tasks that want certain nodes are of
kinds of their own, too.

Of a user so many kinds are in the network at a time (`kind_turns`). What is told of the others is that they may go
nowhere, which costs nothing. What is told of those inside is worked out once, and then for machines that changed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.flow.cluster_changes import GONE, Gone
from scheduler.flow.kind_turns import KINDS_PER_USER_MAX, TURN_ROUNDS, KindTurns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.book.jobs import StageState
    from scheduler.book.kinds import Kind
    from scheduler.flow.cluster_view import ClusterView
    from scheduler.flow.stage_plan import StagePlan
    from scheduler.plane import BookForPlane

OWN_LOOKUPS_MAX = 1_000_000
"""Nodes that are looked at before a round for kinds of single stages. Beyond it kinds stay as they were told, and have
their turn before the next round; what is placed is checked in any case."""

Wanted = tuple[str, ...]
"""Nodes that a task wants; empty if any will do."""
Told = frozenset[str] | Gone | None
"""Machines of a kind; None: all."""
NOWHERE: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class KnownKind:
    """A kind that tasks are of."""

    name: str
    kind: Kind
    wanted: Wanted
    owner: StageState | None
    """The stage whose own it is."""
    stages: dict[StageState, None] = field(default_factory=dict)
    """Those that have tasks of it."""
    machines: set[str] = field(default_factory=set)
    """Of a kind in the network."""
    told: Told = GONE


class Reachable:
    """See the module's docstring."""

    def __init__(self, book: BookForPlane, view: ClusterView) -> None:
        self._book = book
        self._view = view
        self._numbers = itertools.count()
        self._kinds: dict[tuple[Kind | StageState, Wanted], KnownKind] = {}
        self._by_name: dict[str, KnownKind] = {}
        self._inside: dict[str, KnownKind] = {}
        """By name: those in the network."""
        self._own_inside: dict[str, KnownKind] = {}
        """Of these the ones of single stages, those first that were looked up longest ago."""
        self._new: list[KnownKind] = []
        """Those that came since the network was told of kinds."""
        self._turns = KindTurns()
        self._of_stage: dict[StageState, dict[str, KnownKind]] = {}
        self._still_running: dict[StageState, StagePlan] = {}
        """Stages of which nothing is to be placed, but tasks run and are in the network."""
        self._counted: dict[StageState, tuple[int, int]] = {}
        """Of stages of many kinds: how many tasks they had when these were counted, and in which round."""
        self._rounds = 0
        self._gone: list[str] = []
        """Kinds of which the network is to be told that nobody has them."""
        self._left_alone: dict[Kind, dict[str, float]] = {}
        """Kind to nodes that have handed tasks of it back, and until when they get none."""
        self._to_look_at: dict[Kind, set[str]] = {}
        """Kind to nodes that are left alone now and were not, or the other way round."""

    def forget_told(self) -> None:
        """The network is a new one, and knows nothing."""
        self._kinds.clear()
        self._by_name.clear()
        self._inside.clear()
        self._own_inside.clear()
        self._new.clear()
        self._turns = KindTurns()
        self._of_stage.clear()
        self._still_running.clear()
        self._counted.clear()
        self._gone.clear()

    # ---- nodes that have handed tasks back ---------------------------------------------------

    def leave_alone(self, kind: Kind, node_id: str, until_s: float) -> None:
        """The node gets no tasks of this kind until then; `forgive` is to be called at that time."""
        self._left_alone.setdefault(kind, {})[node_id] = until_s
        self._to_look_at.setdefault(kind, set()).add(node_id)

    def forgive(self, now_s: float) -> None:
        """Nodes whose time has come get tasks again."""
        for kind, nodes in list(self._left_alone.items()):
            over = [node_id for node_id, until_s in nodes.items() if until_s <= now_s]
            for node_id in over:
                del nodes[node_id]
            if over:
                self._to_look_at.setdefault(kind, set()).update(over)
            if not nodes:
                del self._left_alone[kind]

    # ---- kinds -------------------------------------------------------------------------------

    def kind_of(self, stage: StageState, wanted: Wanted = ()) -> str:
        """The kind of the stage's tasks that want these nodes, as the network knows it."""
        owner = stage if has_own_kind(stage) else None
        key = (stage.kind if owner is None else owner, wanted)
        known = self._kinds.get(key)
        if known is None:
            known = self._kinds[key] = KnownKind(f"k{next(self._numbers)}", stage.kind, wanted, owner)
            self._by_name[known.name] = known
            self._new.append(known)
        if stage not in known.stages:
            known.stages[stage] = None
            self._of_stage.setdefault(stage, {})[known.name] = known
            self._turns.wanted(stage.job.user, known.name, stage if stage.spec.gang else None)
        return known.name

    def stage_left(self, stage: StageState) -> None:
        """Nothing of the stage is to be placed any more."""
        if stage not in self._of_stage:
            return
        if stage.plan.running:
            self._still_running[stage] = stage.plan
        else:
            self._leave_all(stage)

    def why_outside(self, stage: StageState) -> str:
        """Why tasks of the stage wait outside the network; "" if none do."""
        names = self._of_stage.get(stage, {})
        outside = sum(self._turns.waits(name) for name in names)
        if not outside:
            return ""
        user = stage.job.user
        return (
            f"{outside:,} of the {len(names):,} sets of constraints and preferred nodes that its tasks have wait for"
            f" their turn: of user {user} {self._turns.inside(user):,} are weighed now, of each user at most"
            f" {KINDS_PER_USER_MAX:,} at a time"
        )

    def changes(self) -> dict[str, Told]:
        """Machines by kind, of kinds that are new or have others than before. The view has told its changes before."""
        self._rounds += 1
        changes: dict[str, Told] = {}
        touched = self._view.take_touched()
        self._find_unused()
        for name in self._gone:
            changes[name] = GONE
        self._gone = []
        self._follow(touched, changes)
        came, went = self._turns.take_turns(self._let_in)
        for name in went:
            self._let_out(name, changes)
        for name in came:
            self._tell(self._by_name[name], changes)
        for known in self._new:
            if known.name in self._by_name and known.told is GONE:
                changes[known.name] = known.told = NOWHERE
        self._new = []
        self._look_up_own(changes, set(came))
        return changes

    # ---- which kinds there are ---------------------------------------------------------------

    def _leave(self, known: KnownKind, stage: StageState) -> None:
        """The stage has no tasks of the kind any more."""
        del known.stages[stage]
        self._turns.leaves_gang(stage, known.name)
        user = stage.job.user
        if any(other.job.user == user for other in known.stages):
            return
        if self._turns.unwanted(user, known.name):
            del self._kinds[known.kind if known.owner is None else known.owner, known.wanted]
            del self._by_name[known.name]
            self._inside.pop(known.name, None)
            self._own_inside.pop(known.name, None)
            if known.told is not GONE:
                self._gone.append(known.name)

    def _leave_all(self, stage: StageState) -> None:
        for known in self._of_stage.pop(stage).values():
            self._leave(known, stage)
        self._counted.pop(stage, None)
        self._still_running.pop(stage, None)

    def _find_unused(self) -> None:
        """Kinds of stages whose last tasks have ended; and, if there are more kinds than may be in the network, those
        of which stages have no more tasks."""
        if self._rounds % TURN_ROUNDS == 0:
            over = [stage for stage, plan in self._still_running.items() if not (plan.running or plan.since_s)]
            for stage in over:
                self._leave_all(stage)
        if not self._turns.any_waits:
            return
        for stage in [one for one, kinds in self._of_stage.items() if len(kinds) > 1 and one.plan is not None]:
            tasks, looked_at = self._counted.get(stage, (0, 0))
            if len(stage.plan.since_s) == tasks and self._rounds < looked_at + TURN_ROUNDS:
                continue
            self._counted[stage] = len(stage.plan.since_s), self._rounds
            if not stage.plan.running:
                self._leave_unused(stage)

    def _leave_unused(self, stage: StageState) -> None:
        plan, kinds = stage.plan, self._of_stage[stage]
        used = set(plan.preferred.values())
        if len(plan.preferred) < len(plan.since_s):
            used.add(())
        owner = stage if plan.own_kind else None
        for name, known in list(kinds.items()):
            if known.wanted not in used or known.owner is not owner:
                del kinds[name]
                self._leave(known, stage)
        if not kinds:
            del self._of_stage[stage]
            self._still_running.pop(stage, None)

    # ---- their machines ----------------------------------------------------------------------

    def _let_in(self, name: str) -> int:
        """Look up the machines of a kind that comes in. How many pipes that makes."""
        known = self._by_name[name]
        self._inside[name] = known
        known.machines = self._machines_of(known)
        if known.owner is not None:
            self._own_inside[name] = known
        return self._pipes(known)

    def _let_out(self, name: str, changes: dict[str, Told]) -> None:
        """Its tasks wait outside from now on."""
        known = self._inside.pop(name)
        self._own_inside.pop(name, None)
        known.machines = set()
        changes[name] = known.told = NOWHERE

    def _follow(self, touched: set[str], changes: dict[str, Told]) -> None:
        """Look at machines that came, went or changed, and those that some kinds leave alone now, or no longer."""
        to_look_at, self._to_look_at = self._to_look_at, {}
        if not touched and not to_look_at:
            return
        for known in self._inside.values():
            if known.owner is not None:
                continue
            more = to_look_at.get(known.kind)
            nodes = touched if more is None else touched | more
            among: Iterable[str] = nodes.intersection(known.wanted) if known.wanted else nodes
            changed = False
            for node_id in among:
                if self._may_go(known.kind, node_id) != (node_id in known.machines):
                    known.machines.symmetric_difference_update((node_id,))
                    changed = True
            if changed or (known.told is None) != (len(known.machines) == len(self._view.machines)):
                self._tell(known, changes)

    def _look_up_own(self, changes: dict[str, Told], new: set[str]) -> None:
        """Of kinds of single stages, as far as they have their turn."""
        left = OWN_LOOKUPS_MAX
        for name, known in list(self._own_inside.items()):
            if name in new or known.owner is None or known.owner.plan is None or not known.owner.plan.since_s:
                continue
            if left <= 0:
                break
            left -= max(1, len(self._book.nodes))
            self._own_inside[name] = self._own_inside.pop(name)
            known.machines = self._machines_of(known)
            self._tell(known, changes)

    def _tell(self, known: KnownKind, changes: dict[str, Told]) -> None:
        """Whatever is new of a kind in the network."""
        self._turns.weigh(known.name, self._pipes(known))
        told = None if self._may_go_anywhere(known) else frozenset(known.machines)
        if told != known.told:
            known.told = changes[known.name] = told

    def _pipes(self, known: KnownKind) -> int:
        return 0 if self._may_go_anywhere(known) else len(known.machines)

    def _may_go_anywhere(self, known: KnownKind) -> bool:
        return len(known.machines) == len(self._view.machines)

    def _may_go(self, kind: Kind, node_id: str) -> bool:
        """Whether the machine is there for tasks of the kind. (The view has those that are ready.)"""
        if node_id not in self._view.machines or node_id in self._left_alone.get(kind, ()):
            return False
        return self._book.nodes[node_id].why_not(kind) is None

    def _machines_of(self, known: KnownKind) -> set[str]:
        book, among = self._book, self._view.machines
        left_alone = self._left_alone.get(known.kind, {})
        if known.owner is not None:
            return {
                one
                for one in self._now(known.owner, known.wanted)
                if one in among and one not in left_alone and book.may_start_at(known.owner.job, book.nodes[one])
            }
        if known.wanted:
            return {one for one in known.wanted if self._may_go(known.kind, one)}
        return {one for one in book.nodes.eligible(known.kind) if one in among and one not in left_alone}

    def _now(self, stage: StageState, wanted: Wanted) -> Iterable[str]:
        """Nodes that may be given tasks of a stage now, of those wanted, if some are."""
        if not wanted:
            return self._book.nodes_now(stage)
        return filter(self._book.test_node(stage), wanted)


def has_own_kind(stage: StageState) -> bool:
    """Whether more applies to the stage than its constraints."""
    return bool(stage.job.avoids or stage.search.barred_by) or stage.job.using is not None
