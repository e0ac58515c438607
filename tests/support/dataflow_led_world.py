"""A world of workers that a controller commands, and of the program's process, which calls the program: with snapshots,
workers that come, yield and are lost, and partitions that move."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from frontends.dataflow import Dataflow
from frontends.dataflow.blocks import STOP
from frontends.dataflow.calls import Calls
from frontends.dataflow.commanded_core import CommandedCore
from frontends.dataflow.commanding_controller import CommandingController
from frontends.dataflow.commanding_core import Switches
from frontends.dataflow.commands import Answer, Unknown
from frontends.dataflow.control_messages import CONTROLLER, DRIVER, Begin, RunOver, Settings
from frontends.dataflow.controller_core import State
from frontends.dataflow.submissions import Submissions
from frontends.dataflow.worker_core import WorkerCore
from tests.support.dataflow_world import SPARE, World, _Links, _never, _Paused


class LedWorld(World):
    """See the module's docstring."""

    controller: CommandingController

    def __init__(
        self,
        df: Dataflow,
        program: Callable[[], Any],
        workers: int,
        chance: Random,
        *,
        switches: Switches,
        **options: Any,
    ) -> None:
        self.switches = switches
        self.begin: Begin | None = None
        """The epoch in which the program is called."""
        self.block = 0
        self.signals: dict[int, bool] = {}
        self.waits = False
        """Whether the program waits for an answer."""
        self.has_returned = True
        super().__init__(df, program, workers, chance, **options)

    def _new_controller(self, workers: int) -> CommandingController:
        plane = "templates" if self.switches.controller_templates else "central"
        settings = Settings(workers + SPARE, workers, workers, 10.0, None, "", 0, 0, [], plane)
        return CommandingController(
            settings, self.chance, definition_of=lambda data: self.definitions[int(data)], switches=self.switches
        )

    def _new_worker(self, number: int) -> WorkerCore:
        return WorkerCore(
            number, _Links(self, number), lambda data: self.definitions[int(data)], clock=self.clock,
            poll=lambda now: STOP, recorder=self.recorder and self.recorder(number), is_commanded=True,
        )  # fmt: skip

    # ---- the program's process --------------------------------------------------------------------

    def _do(self, event: Callable[[], None]) -> None:
        def with_step() -> None:
            event()
            self.controller.step()

        super()._do(with_step)

    def _told(self, message: Any) -> None:
        if isinstance(message, Begin | Answer | Unknown):
            self.links.setdefault((CONTROLLER, DRIVER), deque()).append(message)
        else:
            super()._told(message)

    def _to_controller(self, message: Any) -> None:
        self.sent[type(message).__name__] += 1
        self.links.setdefault((DRIVER, CONTROLLER), deque()).append(message)

    def deliver(self, link: tuple[int, int]) -> None:
        sender, peer = link
        if peer == DRIVER and sender == CONTROLLER:
            self._answered(self.links[link].popleft())
        elif sender == DRIVER and peer == CONTROLLER:
            message = self.links[link].popleft()
            self._do(lambda: self.controller.driver_says(message, self.now_s))
        else:
            super().deliver(link)

    def _answered(self, message: Begin | Answer | Unknown) -> None:
        if isinstance(message, Begin):
            self.begin, self.block, self.signals = message, message.until, dict(message.signals)
            self.waits = self.has_returned = False
            self.submissions = Submissions(
                self.definitions[message.run], self._to_controller, epoch=message.epoch, first_block=message.until,
                is_templated=self.switches.controller_templates,
            )  # fmt: skip
            return
        answer = self.submissions.receive(message)
        if answer is not None:
            assert answer.block == self.block
            self.signals[self.block] = answer.value
            self.block += 1
            self.waits = False

    def _call(self) -> bool:
        """Call the program for its next block; whether there was anything to do."""
        if self.begin is None or self.waits or self.has_returned:
            return False
        calls = Calls(_never, until=self.block, signals=self.signals)
        try:
            self.call_program(self.begin.run, calls)
        except _Paused as paused:
            assert paused.block.number == self.block
            self.submissions.begin(paused.block)
            self.waits = True
        else:
            self.has_returned = True
            self._to_controller(RunOver(self.begin.epoch, calls.blocks, calls.hash, b"", ()))
        return True

    # ---- what happens -----------------------------------------------------------------------------

    def _see_epoch(self, number: int) -> None:
        """Workers do not call the program."""

    def work(self, worker: int) -> bool:
        worker_core = self.workers[worker]
        called = self._call()
        if worker_core.wants_load:
            worker_core.load()
            return True
        core = worker_core.core
        if core is None:
            return called
        assert isinstance(core, CommandedCore)
        was_busy = core.has_work
        core.step()
        worker_core.check_invariants()
        return was_busy or called

    def _over(self) -> bool:
        return self.has_returned

    def move(self, slot: Any = None, worker: int | None = None) -> bool:
        return self.controller.state is State.RUNNING and not self.controller.live and super().move(slot, worker)

    # ---- what came of it --------------------------------------------------------------------------

    def with_copy(self, dataset: int) -> list[Any]:
        return [self.cores[self.holder(dataset, 0)]]

    def holder(self, dataset: int, index: int) -> int:
        holder = self.controller._holder(dataset, index)
        assert holder is not None
        return holder
