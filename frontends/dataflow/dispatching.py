"""Single tasks that a controller sends to workers when what they wait for is done.

This is what controllers without worker templates do for each task: note that it is done, count down what waits for it,
send what is ready. The graph is made while tasks are submitted, or once from a template.
"""

from __future__ import annotations

from collections.abc import Iterable

from frontends.dataflow.commands import RECEIVES, SENDS, Command
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.planning import Node, transfer_of

NOWHERE = -1
"""The worker of a join, which is no task: it is done when all tasks of a scatter's call are."""


class Dispatcher:
    """One block at a time. `take` hands out what is ready, by worker."""

    def __init__(self) -> None:
        self.workers: list[int] = []
        self.commands: list[Command] = []
        self.waits: list[int] = []
        """How many each waits for in all; `needs`, for how many still."""
        self.after: list[list[int]] = []
        self.needs: list[int] = []
        self.done: list[bool] = []
        self.undone = 0
        self._at: dict[int, int] = {}
        """Position by number."""
        self._joins: dict[int, int] = {}
        self._ready: dict[int, list[Command]] = {}
        self._is_held = False

    # ---- the graph --------------------------------------------------------------------------------

    def add(self, node: Node, call: int, stage: int, index: int, source: int = -1, scatters: int = 0) -> None:
        """A task of a call; a gather names the call of its scatter (`source`), a scatter says how many tasks it has."""
        position = self._append(node.worker, (len(self.workers), call, stage, index, source))
        self._at[node.number] = position
        for number in node.before:
            self._follow(position, self._at[number])
        if scatters:
            if call not in self._joins:
                join = self._joins[call] = self._append(NOWHERE, (len(self.workers), call, stage, -1, -1))
                self.waits[join] = self.needs[join] = scatters
            self.after[position].append(self._joins[call])
        if source >= 0:
            self._follow(position, self._joins[source])
        if not self.needs[position]:
            self._send(position)

    def add_transfer(self, node: Node) -> None:
        transfer = transfer_of(node.number)
        number = len(self.workers)
        command = (
            (number, RECEIVES, transfer.dataset, 0, transfer.tag)
            if transfer.receives
            else (number, SENDS, transfer.dataset, transfer.worker, transfer.tag)
        )
        position = self._append(node.worker, command)
        self._at[node.number] = position
        for before in node.before:
            self._follow(position, self._at[before])
        if not self.needs[position]:
            self._send(position)

    def _append(self, worker: int, command: Command) -> int:
        position = len(self.workers)
        self.workers.append(worker)
        self.commands.append(command)
        self.waits.append(0)
        self.needs.append(0)
        self.after.append([])
        self.done.append(False)
        self.undone += 1
        return position

    def _follow(self, position: int, before: int) -> None:
        self.waits[position] += 1
        self.after[before].append(position)
        if not self.done[before]:
            self.needs[position] += 1

    # ---- what is ready ----------------------------------------------------------------------------

    def hold(self) -> None:
        """Hand out nothing until `release`: data are on their way."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False

    def _send(self, position: int) -> None:
        worker = self.workers[position]
        if worker == NOWHERE:
            self._finish(position)
            return
        ready = self._ready.get(worker)
        if ready is None:
            ready = self._ready[worker] = []
        ready.append(self.commands[position])

    def _finish(self, position: int) -> None:
        if self.done[position]:
            raise ProtocolError(f"task {position} of the block is done twice")
        self.done[position] = True
        self.undone -= 1
        needs = self.needs
        for follower in self.after[position]:
            need = needs[follower] = needs[follower] - 1
            if not need:
                self._send(follower)

    def completed(self, positions: Iterable[int]) -> None:
        """Workers have done these."""
        for position in positions:
            self._finish(position)

    def take(self) -> dict[int, list[Command]]:
        """What is ready and was not handed out."""
        if self._is_held or not self._ready:
            return {}
        ready, self._ready = self._ready, {}
        return ready

    def again(self) -> None:
        """The same tasks once more, all undone."""
        self.needs = self.waits[:]
        self.done = [False] * len(self.workers)
        self.undone = len(self.workers)
        self._ready = {}
        for position, waits in enumerate(self.waits):
            if not waits:
                self._send(position)

    def check_invariants(self) -> None:
        counted = [0] * len(self.workers)
        for position, after in enumerate(self.after):
            for follower in after:
                counted[follower] += not self.done[position]
        for position, (need, edges) in enumerate(zip(self.needs, counted, strict=True)):
            # The scatter's tasks that a join waits for may still be to come.
            assert edges == need or (self.workers[position] == NOWHERE and edges < need), (position, need, edges)
        assert self.undone == self.done.count(False)
