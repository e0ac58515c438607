"""Which machines tasks may go to, as the network is told: by kind. Stages of equal constraints are of one kind; a stage
to which more applies than these (jobs that it avoids, nodes that its client must know before, or that do not want its
tasks for good) has one of its own, whose machines are looked up before each round. Tasks that want certain nodes are of
kinds of their own, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.book.jobs import StageState
    from scheduler.book.kinds import Kind
    from scheduler.flow.cluster_view import ClusterView
    from scheduler.plane import BookForPlane

KINDS_MAX = 50_000
"""Kinds that a network is told of; then it is built anew, without those that nobody uses any more."""

Wanted = tuple[str, ...]
"""Nodes that a task wants; empty if any will do."""


class Reachable:
    """See the module's docstring."""

    def __init__(self, book: BookForPlane, view: ClusterView) -> None:
        self._book = book
        self._view = view
        self._names: dict[tuple[Kind, Wanted], str] = {}
        self._own: dict[StageState, dict[Wanted, str]] = {}
        """Of stages with kinds of their own."""
        self._told: dict[str, frozenset[str] | None] = {}
        self._told_version = -1
        """Of the view, when the kinds of `_names` were told."""
        self._left_alone: dict[Kind, dict[str, float]] = {}
        """Kind to nodes that have handed tasks of it back, and until when they get none."""

    @property
    def full(self) -> bool:
        """Whether there are too many kinds."""
        return len(self._told) > KINDS_MAX

    def forget_told(self) -> None:
        """The network is a new one, and knows nothing."""
        self._names.clear()
        self._own.clear()
        self._told.clear()
        self._told_version = -1

    # ---- nodes that have handed tasks back ---------------------------------------------------

    def leave_alone(self, kind: Kind, node_id: str, until_s: float) -> None:
        """The node gets no tasks of this kind until then; `forgive` is to be called at that time."""
        self._left_alone.setdefault(kind, {})[node_id] = until_s
        self._told_version = -1

    def forgive(self, now_s: float) -> None:
        """Nodes whose time has come get tasks again."""
        for kind, nodes in list(self._left_alone.items()):
            left = {node_id: until_s for node_id, until_s in nodes.items() if until_s > now_s}
            if left:
                self._left_alone[kind] = left
            else:
                del self._left_alone[kind]
        self._told_version = -1

    # ---- kinds -------------------------------------------------------------------------------

    def kind_of(self, stage: StageState, wanted: Wanted = ()) -> str:
        """The kind of the stage's tasks that want these nodes, as the network knows it."""
        if has_own_kind(stage):
            own = self._own.setdefault(stage, {})
            if wanted not in own:
                own[wanted] = f"s{stage.plan.number}.{len(own)}"
            return own[wanted]
        name = self._names.get((stage.kind, wanted))
        if name is None:
            name = self._names[stage.kind, wanted] = f"k{len(self._names)}"
            self._told_version = -1
        return name

    def stage_left(self, stage: StageState) -> None:
        """Nothing of the stage is to be placed any more."""
        for name in self._own.pop(stage, {}).values():
            self._told.pop(name, None)

    def changes(self) -> dict[str, frozenset[str] | None]:
        """Machines by kind, of kinds that are new or have others than before. The view has told its changes before."""
        changes: dict[str, frozenset[str] | None] = {}
        if self._told_version != self._view.version:
            self._told_version = self._view.version
            for (kind, wanted), name in self._names.items():
                self._tell(name, self._machines_of(kind, wanted), changes)
        for stage, own in self._own.items():
            machines = self._machines_for(stage)
            for wanted, name in own.items():
                self._tell(name, machines.intersection(wanted) if wanted else machines, changes)
        return changes

    def _tell(self, name: str, machines: frozenset[str], changes: dict[str, frozenset[str] | None]) -> None:
        told = None if len(machines) == len(self._view.machines) else machines
        if name not in self._told or self._told[name] != told:
            self._told[name] = changes[name] = told

    def _machines_of(self, kind: Kind, wanted: Wanted) -> frozenset[str]:
        nodes, among = self._book.nodes, self._view.machines
        left_alone = self._left_alone.get(kind, {})
        eligible: Iterable[str] = nodes.eligible_set(kind).intersection(wanted) if wanted else nodes.eligible(kind)
        return frozenset(one for one in eligible if one in among and one not in left_alone)

    def _machines_for(self, stage: StageState) -> frozenset[str]:
        book, job, among = self._book, stage.job, self._view.machines
        left_alone = self._left_alone.get(stage.kind, {})
        return frozenset(
            one
            for one in book.nodes_now(stage)
            if one in among and one not in left_alone and book.may_start_at(job, book.nodes[one])
        )


def has_own_kind(stage: StageState) -> bool:
    """Whether more applies to the stage than its constraints."""
    return bool(stage.job.avoids or stage.search.barred_by) or stage.job.using is not None
