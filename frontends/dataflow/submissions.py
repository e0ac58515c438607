"""The driver's half of the commanded planes: what it sends the controller for each block of the program.

A block that the controller has a template of is one message, any other a message a task, some in each frame.
"""

from __future__ import annotations

from collections.abc import Callable

from frontends.dataflow.blocks import Cache
from frontends.dataflow.calls import Block, chunk_sources
from frontends.dataflow.commands import Answer, Invoke, Parameters, Requested, Spawned, Submit, Unknown
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.stages import Definition
from frontends.dataflow.templates import TEMPLATES_MAX

FRAME_TASKS_MAX = 1_000


class Submissions:
    """One block at a time. `is_templated` is False on the plane `central`."""

    def __init__(
        self,
        definition: Definition,
        send: Callable[[Requested], None],
        *,
        is_templated: bool,
        epoch: int = 0,
        first_block: int = 0,
    ) -> None:
        self.definition, self.epoch = definition, epoch
        self._send, self._is_templated = send, is_templated
        self._templates: Cache[tuple[int, tuple[int, ...]], int] = Cache(TEMPLATES_MAX)
        self._block: Block | None = None
        self.blocks = first_block
        """Blocks that were begun, of all runs: they are numbered on, so that none is taken for one before."""

    def begin(self, block: Block) -> None:
        """Have the block run."""
        block = self._block = block._replace(number=self.blocks)
        self.blocks += 1
        template = self._templates.get((self.definition.version, block.stages)) if self._is_templated else None
        if template is None:
            self._submit(block)
        else:
            self._send(Invoke(self.epoch, block.number, block.first_call, template, block.parameters))

    def _submit(self, block: Block) -> None:
        chunk_sources(self.definition, block.stages)  # Refuses scatters that nothing gathers.
        parameters = dict(block.parameters)
        tasks: list[Spawned] = []
        stated: list[int] = []
        for call, stage in enumerate(block.stages):
            if call in parameters:
                stated.append(call)
            for index in range(self.definition.stages[stage].partitions):
                tasks.append((call, stage, index))
                if len(tasks) == FRAME_TASKS_MAX:
                    self._frame(block, tasks, stated, ends=False)
                    tasks, stated = [], [call] if call in parameters else []
        self._frame(block, tasks, stated, ends=True)

    def _frame(self, block: Block, tasks: list[Spawned], stated: list[int], *, ends: bool) -> None:
        given = dict(block.parameters)
        parameters: Parameters = tuple((call, given[call]) for call in stated)
        self._send(Submit(self.epoch, block.number, block.first_call, tasks, parameters, ends))

    def receive(self, message: Answer | Unknown) -> Answer | None:
        """What the controller says; the answer, if it is one of the block that was begun last."""
        if message.epoch != self.epoch:
            return None
        block = self._block
        if block is None or message.block != block.number:
            raise ProtocolError(f"the controller answers block {message.block}, which was not asked for")
        if isinstance(message, Unknown):
            self._submit(block)
            return None
        self._block = None
        if self._is_templated:
            self._templates.put((self.definition.version, block.stages), message.template)
        return message
