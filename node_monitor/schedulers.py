"""The schedulers that are linked to a node, and what they are told of the node: state, apps, attributes, free slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from node_monitor.attributes import with_attributes
from node_monitor.executors.executor_state import OfferedApp
from node_monitor.history import History
from sparrow_py.wire import messages as m


class Schedulers:
    """Schedulers by name, and the node as they know it."""

    __slots__ = (
        "_history", "_idle_turn", "_offered", "_report_idle", "_to_scheduler", "_unaware", "bytes_max",
        "ended_for", "idle_told", "info", "node", "sampling", "state",
    )  # fmt: skip

    def __init__(
        self,
        node: m.NodeInfo,
        offered: Mapping[str, OfferedApp],
        report_idle: bool,
        history: History,
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self._offered = offered
        self._report_idle = report_idle
        self._history = history
        self._to_scheduler = to_scheduler
        self.bytes_max: dict[str, int] = {}
        """Connected schedulers, and the largest result in bytes that each takes."""
        self.sampling: dict[str, None] = {}
        """Those of them whose tasks are not placed by a plane of another kind."""
        self._unaware: dict[str, int] = {}
        """Those of them that may still launch tasks here: how often they have yet to answer that the node drains."""
        self.node = self._offering(node)
        """What schedulers are told of the node when they are greeted."""
        self.info = self.node
        """The same with what it offers now, and with what its executors say of it."""
        self.state = m.READY
        self.idle_told = 0
        """Free slots that a scheduler was told of since the last reservation came."""
        self._idle_turn = 0
        self.ended_for = ""
        """Scheduler of the task that ended last; empty once another has said that it has none."""

    # ---- links -------------------------------------------------------------------------------

    def up(self, scheduler: str, frame_bytes_max: int, plane: str) -> None:
        """A link stands: say how the node is other than it was greeted."""
        if plane == m.SPARROW:
            self.sampling[scheduler] = None
        self.bytes_max[scheduler] = frame_bytes_max - m.MESSAGE_OVERHEAD_BYTES
        if self.state != m.READY:
            self._say_state(scheduler)
        if self.info != self.node:
            self._to_scheduler(scheduler, m.NodeChanged(self.info))

    def down(self, scheduler: str) -> None:
        """The scheduler is gone."""
        self.bytes_max.pop(scheduler, None)
        self.sampling.pop(scheduler, None)
        self._unaware.pop(scheduler, None)
        self.idle_told = 0

    # ---- the node's state --------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether the node takes nothing new."""
        return self.state == m.DRAINING

    @property
    def all_know(self) -> bool:
        """Whether no scheduler may still launch tasks here because it does not know that the node drains."""
        return not self._unaware

    def enter(self, state: str, now_s: float) -> None:
        """The node is ready, cordoned or draining from now on."""
        self.state = state
        self._history.note(now_s, "the node is %s", state)
        for scheduler in sorted(self.bytes_max):
            self._say_state(scheduler)

    def _say_state(self, scheduler: str) -> None:
        self._to_scheduler(scheduler, m.NodeState(self.state, f"the node is {self.state}"))
        if self.draining:
            self._unaware[scheduler] = self._unaware.get(scheduler, 0) + 1

    def draining_known(self, scheduler: str, message: m.DrainingKnown, now_s: float) -> None:
        """A scheduler knows that the node drains: what it launched here before has come."""
        left = self._unaware.pop(scheduler, 0) - 1
        if left > 0:
            self._unaware[scheduler] = left

    # ---- what the node offers ----------------------------------------------------------------

    def _offering(self, node: m.NodeInfo) -> m.NodeInfo:
        """The node with what it offers now, and why not the rest."""
        apps = {name: app.runtime for name, app in self._offered.items() if app.told}
        withdrawn = {name: app.withdrawn for name, app in self._offered.items() if app.withdrawn}
        return msgspec.structs.replace(node, apps=apps, withdrawn=withdrawn)

    def tell_of_node(self, attributes: Iterable[Mapping[str, str]], now_s: float) -> None:
        """Have all know what the node is by its apps and its executors' attributes now, if that has changed."""
        info = with_attributes(self._offering(self.node), attributes)
        if info == self.info:
            return
        self.info = info
        self.tell_all_again()
        self._history.note(now_s, "apps are now %s, attributes %s", ", ".join(info.apps), info.attributes)

    def tell_all_again(self) -> None:
        """Have all know that something about the node has changed, though nothing that they see may have."""
        for scheduler in self.bytes_max:
            self._to_scheduler(scheduler, m.NodeChanged(self.info))

    # ---- free slots --------------------------------------------------------------------------

    def say_idle(self, free: int) -> None:
        """Nothing is queued and so many slots are free: if those are more than was said, tell one that samples.

        It is the one whose task has just ended, if one has: as good as a random one, and it is written to anyway.
        """
        if free <= self.idle_told or not self._report_idle or self.state != m.READY or not self.sampling:
            return
        self.idle_told = free
        scheduler = self.ended_for
        if scheduler not in self.sampling:
            self._idle_turn += 1
            scheduler = list(self.sampling)[self._idle_turn % len(self.sampling)]
        self._to_scheduler(scheduler, m.Idle(free))

    def idle_taken(self) -> None:
        """A scheduler has used a slot of which one was told: of the others that one knows still."""
        if self.idle_told:
            self.idle_told -= 1

    def take_part_again(self) -> None:
        """Whoever was told of free slots was refused: say it again."""
        self.idle_told = 0
