"""The controller of a program whose workers are commanded, planes `templates` and `central`: as `controller_core`, but
that the program's own process calls the program, and that a `CommandingCore` says what workers run.

Blocks come one after the other, so partitions move, workers join and leave, and snapshots are made between two blocks,
without further messages among workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from frontends.dataflow.blocks import Slot
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, CommandingCore, Phase, Switches
from frontends.dataflow.commands import Answer, Commanded, Completed, Finished, Invoke, Placed, Submit
from frontends.dataflow.control_messages import DRIVER, Begin, Enter, RunFailed, RunOver, Settings
from frontends.dataflow.controller_core import END, IN_EPOCH, Chance, ControllerCore, Snapshot, State, WorkerState
from frontends.dataflow.controller_effects import Key
from frontends.dataflow.placement import newcomers_share
from frontends.dataflow.stages import Definition

SWITCHES = {"templates": ALL_ON, "central": CENTRAL}
"""By plane."""
FROM_DRIVER = Submit | Invoke | RunOver | RunFailed


class _Outbox:
    """Of the `CommandingCore`."""

    def __init__(self, controller: CommandingController) -> None:
        self._controller = controller

    def send(self, peer: int, message: Commanded) -> None:
        if peer != DRIVER:
            self._controller._send(peer, message)
            return
        self._controller._tell(message)
        if isinstance(message, Answer):
            self._controller._answered(message)


class CommandingController(ControllerCore):
    """See the module's docstring. `definition_of` reads the outline of a run's definition."""

    def __init__(
        self,
        settings: Settings,
        chance: Chance,
        whole: Mapping[Key, Snapshot] | None = None,
        *,
        definition_of: Callable[[bytes], Definition],
        switches: Switches | None = None,
    ) -> None:
        super().__init__(settings, chance, whole)
        self._definition_of = definition_of
        self._switches = SWITCHES[settings.plane] if switches is None else switches
        self._commanding: CommandingCore | None = None
        """Of this epoch, or of one before."""
        self._moves_before = 0
        """Of earlier epochs."""

    @property
    def commanding(self) -> CommandingCore | None:
        """Of this epoch; None while its members load."""
        core = self._commanding
        return core if core is not None and core.epoch == self.epoch else None

    # ---- an epoch begins --------------------------------------------------------------------------

    def _begun(self) -> None:
        self._moves_before = self.moves
        definition = self._definition_of(self.runs[self.position].outline)
        self._commanding = CommandingCore(
            definition, self.members(), self.placed, _Outbox(self), epoch=self.epoch, switches=self._switches
        )
        self._tell(Begin(self.position, self.epoch, self._signalled + 1, self.recorded))

    def _holder(self, dataset: int, index: int) -> int | None:
        """Partitions that no block has touched since their move are still where they were."""
        assert self._commanding is not None
        return self._commanding.holder(dataset, index)

    # ---- the program's process --------------------------------------------------------------------

    def driver_says(self, message: FROM_DRIVER, now_s: float) -> None:
        """The program goes on, has returned, or has failed."""
        self._now_s = now_s
        if message.epoch != self.epoch:
            return
        match message:
            case RunOver():
                if self.state is State.RUNNING:
                    self._returned(message)
            case RunFailed():
                if self.state in IN_EPOCH:
                    self._give_up(message.error)
            case _:
                self._receive_more(DRIVER, message)

    def _returned(self, message: RunOver) -> None:
        self._result = message
        for member in self.members():
            self.workers[member].over = True
        self._see_over()

    def step(self) -> None:
        """All messages that have come were received: send single tasks that are ready."""
        if self.commanding is not None:
            self.commanding.step()

    # ---- blocks -----------------------------------------------------------------------------------

    def _receive_more(self, number: int, message: Any) -> None:
        core = self.commanding
        if core is None or not isinstance(message, Submit | Invoke | Finished | Completed):
            return
        core.receive(number, message)
        while core.left:
            self._dismiss(core.left.pop(), "its slot is another user's turn")

    def _answered(self, message: Answer) -> None:
        """A block is over everywhere, and the next one has not begun."""
        core = self.commanding
        assert core is not None
        self.recorded[message.block] = message.value
        self._block = self._signalled = message.block
        self.moves = self._moves_before + core.moves
        self._store_between_blocks()
        self._see_leaving()

    # ---- workers come and go ----------------------------------------------------------------------

    def _invite(self, number: int) -> None:
        """Have a worker make copies of replicated datasets, of any version. Then it is a member."""
        core = self.commanding
        assert core is not None
        self.workers[number].state = WorkerState.JOINING
        entries = [(*slot, *entry) for slot, entry in self.placed.items()]
        made = [(dataset, 0) for dataset in core.definition.copies()]
        shipped, members = self.runs[self.position], tuple(self.members())
        self._send(
            number,
            Enter(
                self.epoch, shipped, self._signalled + 1, self.recorded, entries, members, made, [], [], [], joins=True
            ),
        )  # fmt: skip

    def _ready(self, number: int) -> None:
        core = self.commanding
        if core is None or self.workers[number].state is not WorkerState.JOINING:
            super()._ready(number)
            return
        worker = self.workers[number]
        worker.state, worker.ready, worker.over = WorkerState.MEMBER, True, False
        core.join(number)
        self._send(number, Placed(self.epoch, [(*slot, entry.worker) for slot, entry in self.placed.items()]))
        for slot in newcomers_share(core.destinations(), number, self._in(WorkerState.MEMBER)):
            self.order_move(slot, number)

    def _tell_gone(self, number: int, others: tuple[int, ...]) -> None:
        """Members send only where they are told to."""

    def _see_leaving(self) -> None:
        leaving = self._in(WorkerState.LEAVING)
        if not leaving or self.state not in (State.RUNNING, State.IDLE):
            return
        core = self.commanding
        if self.live:
            self._store_end()  # No block comes before which they could hand over what they hold.
        elif core is not None and self.state is State.RUNNING:
            if not self._in(WorkerState.MEMBER):
                if self._storing is None:
                    self.make_snapshot()
                return
            for number in leaving:
                if number not in core.leaving:
                    core.leave(number)

    def order_move(self, slot: Slot, number: int) -> None:
        """Have a partition move to a worker before the next block."""
        core = self.commanding
        assert core is not None
        core.move(slot, number)

    # ---- snapshots --------------------------------------------------------------------------------

    def make_snapshot(self) -> None:
        """Have all store their partitions when no block runs."""
        self._storing = (-1, 0)
        self._snapshot_s = self._now_s
        self._store_between_blocks()

    def _store_between_blocks(self) -> None:
        core = self.commanding
        if self._storing != (-1, 0) or core is None or core.phase is not Phase.IDLE or self._signalled < 0:
            return
        key = self._storing = (self.position, self._signalled)
        snapshot = self.snapshots.get(key)
        if snapshot is not None and snapshot.signals is not None:
            self._storing = None
            self._see_stored()
        else:
            core.store(self._signalled)

    def _have_end_stored(self) -> None:
        core = self._commanding
        assert core is not None
        core.store(END)

    def _see_stored(self) -> None:
        if not self.live:
            super()._see_stored()
            if self.state is State.STALLED:
                self._commanding = None
            return
        if not self._in(WorkerState.LEAVING):
            if self.state is State.IDLE:
                self._trim()
            return
        end = self.snapshots.get((self.position, END))
        if end is None or end.signals is None:
            return  # This snapshot is of a block of the run; what the run left is still to be stored.
        self._dismiss_leaving()
        for number in self._in(WorkerState.MEMBER):
            self.workers[number].state = WorkerState.HERE
        self.live = False
        if self.state is State.IDLE:
            self._trim()
            self._see_over()
        else:
            self._wait_for_workers()

    # ---- invariants -------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        super().check_invariants()
        core = self.commanding
        assert not self.moving
        if core is None:
            return
        core.check_invariants()
        assert core.placed is self.placed
        if self.state is State.RUNNING:
            assert set(core.workers) == set(self.members())
            assert core.leaving <= set(self._in(WorkerState.LEAVING))
