"""Which process runs a test, with pytest-xdist: those of a file go to one, and those that run alone come last.

`--dist loadgroup` would do for the groups, but it writes them into `_nodeid`, which pytest 9.2 does not read; and it
starts tests that are to run alone beside others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.suites import ONE_FILE_AT_A_TIME, is_alone

ALONE_PROCESSES = 3
"""How many processes run tests beside which no others may run, but such: one that plays rows of the fault matrix waits
more than half of the time."""
IN_A_ROW = 3
"""Tests of a group of these, as they were collected: so rows hit the same target as seldom. A process takes another
group when it has ended its own, so that all end at about the same time."""


class _Collection(list[str]):
    """Tests whose places are looked up, rather than looked for among thousands."""

    def __init__(self, tests: Sequence[str]) -> None:
        super().__init__(tests)
        self._places = {test: place for place, test in enumerate(tests)}

    def index(self, test: str, *_: Any) -> int:
        """Its place."""
        return self._places[test]


class ByFile(LoadScopeScheduling):
    """The tests of a file share what its fixtures have made, so one process runs them. Those that run alone are groups
    of their own, the last in the queue, as the tests come in that order; others.py has them wait for all others."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._run_alone: set[Any] = set()
        """Processes that have got tests which run alone."""

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """A process has collected these."""
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = _Collection(collection)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """A test has ended. Groups of which all have ended are not counted again and again."""
        super().mark_test_complete(node, item_index, duration)
        assigned = self.assigned_work[node]
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(assigned[group].values()):
            del assigned[group]

    def _assign_work_unit(self, node: Any) -> None:
        """Give a process another group. It ends instead if only groups are left that enough others run."""
        if is_alone(next(iter(next(iter(self.workqueue.values()))))):
            if node not in self._run_alone and len(self._run_alone) == ALONE_PROCESSES:
                node.shutdown()
                return
            self._run_alone.add(node)
        super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        """A process has ended, or crashed: then another runs what it has not."""
        self._run_alone.discard(node)
        crashed: str | None = super().remove_node(node)
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        if is_alone(nodeid):
            return self._alone_groups[nodeid]
        shared = next((directory for directory in ONE_FILE_AT_A_TIME if nodeid.startswith(directory)), None)
        return shared or nodeid.partition("::")[0]

    @cached_property
    def _alone_groups(self) -> dict[str, str]:
        """By test."""
        tests = filter(is_alone, self.collection or ())
        return {nodeid: f"alone {number // IN_A_ROW}" for number, nodeid in enumerate(tests)}
