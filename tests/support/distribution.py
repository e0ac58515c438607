"""Which process runs a test, with pytest-xdist: those of a file go to one, and those that run alone come last.

`--dist loadgroup` would do for the groups, but it writes them into `_nodeid`, which pytest 9.2 does not read; and it
starts a group that is to run alone beside others.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.suites import ONE_FILE_AT_A_TIME, is_alone

ALONE = "alone"
"""The group of all tests beside which nothing else may run."""


class ByFile(LoadScopeScheduling):
    """The tests of a file share what its fixtures have made, so one process runs them. The group `ALONE` is the last
    in the queue, as the tests come in that order; its tests run when all processes but one have ended."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        if is_alone(nodeid):
            return ALONE
        shared = next((directory for directory in ONE_FILE_AT_A_TIME if nodeid.startswith(directory)), None)
        return shared or nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if next(iter(self.workqueue)) != ALONE or not self._any_other_has_work(node):
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if not node.shutting_down and list(self.workqueue) == [ALONE] and self._any_other_waits(node):
            node.shutdown()  # When its tests have ended, and what they shared.
        else:
            super()._reschedule(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        if list(self.workqueue) == [ALONE]:
            for other in self.nodes:
                self._reschedule(other)

    def _others(self, node: WorkerController) -> list[WorkerController]:
        return [other for other in self.nodes if other is not node]

    def _any_other_waits(self, node: WorkerController) -> bool:
        return any(not other.shutting_down for other in self._others(node))

    def _any_other_has_work(self, node: WorkerController) -> bool:
        return any(self._pending_of(self.assigned_work[other]) for other in self._others(node))
