"""Tasks that ask for large data are best started where these lie: their bytes need not move.

With such stages late binding chooses which of their first tasks a node gets, and sampling which nodes are asked: an
idle one that has the most bytes of a task's data is the only one asked for it; one that is busy is one of those that
are. So nobody waits for a node, and tasks with task-level constraints go where these say.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from sparrow_py.job import BlobRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.book.holdings import Holdings
    from scheduler.book.jobs import StageState
    from scheduler.book.nodes import Node

TASKS_LOOKED_AT = 32
"""Of a stage's unplaced tasks so many are compared, the first ones."""
STAGES_LOOKED_AT = 32
"""Of the user's waiting stages of a kind so many are compared, the oldest, each by its first task."""
OVERTAKEN_MAX = 64
"""Tasks of others that go before the oldest of these stages since a node has their data."""
INPUTS_LOOKED_AT = 16
"""Of what a task asks for so much is looked at."""


class NearData:
    """See the module's docstring."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings

    def take(self, stage: StageState, node: Node) -> int:
        """The task that the node gets, which is unplaced no more: of the first ones that of whose data the node has the
        most bytes; the first, if it has none."""
        best, most = -1, 0
        for task in stage.first_tasks(TASKS_LOOKED_AT):
            size = self._holdings.bytes_at(node, large_inputs(stage, task))
            if best < 0 or size > most:
                best, most = task, size
        if best < 0:
            return stage.take_next()
        stage.take(best)
        return best

    def stage(self, first: StageState, waiting: Iterable[StageState], node: Node) -> StageState:
        """The stage of whose tasks the node gets one: `first`, or one that waits with it and is no longer, if the
        node has more bytes for that. Which is not so for ever: it then goes before all."""
        plan = first.plan
        if plan.overtaken >= OVERTAKEN_MAX:
            return first
        best, most = first, self._most_of(first, node)
        for other in islice(waiting, STAGES_LOOKED_AT):
            job = other.job
            if other.unplaced > first.unplaced or not job.has_large or job.using is not None or job.avoids:
                continue
            size = self._most_of(other, node)
            if size > most:
                best, most = other, size
        plan.overtaken += best is not first
        return best

    def _most_of(self, stage: StageState, node: Node) -> int:
        """Bytes that the node has for the stage's first task."""
        tasks = stage.first_tasks(1) if stage.details else ()
        return sum([self._holdings.bytes_at(node, large_inputs(stage, task)) for task in tasks])

    def nodes(self, stage: StageState, count_max: int, is_allowed: Callable[[str], bool]) -> Counter[str]:
        """Of the first unplaced tasks, so many at most, how many have the most bytes of their data at which of the
        nodes that may run them."""
        found: Counter[str] = Counter()
        for task in stage.first_tasks(min(count_max, TASKS_LOOKED_AT)):
            found.update(islice(filter(is_allowed, self._holdings.most_at(large_inputs(stage, task))), 1))
        return found


def large_inputs(stage: StageState, task: int) -> list[BlobRef]:
    """The large data that the task asks for, as far as they are looked at."""
    detail = stage.details.get(task)
    if detail is None:
        return []
    results = stage.job.results
    numbers = (number for first, count in detail.inputs for number in range(first, first + count))
    found = (results.get(number) for number in islice(numbers, INPUTS_LOOKED_AT))
    return [data for data in found if isinstance(data, BlobRef)]
