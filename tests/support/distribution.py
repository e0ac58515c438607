"""Which process runs a test, with pytest-xdist: those of a file go to one, and those that run alone come last.

`--dist loadgroup` would do for the groups, but it writes them into `_nodeid`, which pytest 9.2 does not read; and it
starts tests that are to run alone beside others.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.suites import ONE_FILE_AT_A_TIME, is_alone

ALONE_GROUPS = 3
"""Groups of the tests beside which no others may run, but those of the other groups: a process that plays rows of the
fault matrix waits more than half of the time."""
IN_A_ROW = 3
"""Tests of such a group that follow each other as they were collected: so rows hit the same target as seldom."""


class ByFile(LoadScopeScheduling):
    """The tests of a file share what its fixtures have made, so one process runs them. Those that run alone are groups
    of their own, the last in the queue, as the tests come in that order; others.py has them wait for all others."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        if is_alone(nodeid):
            return self._alone_groups[nodeid]
        shared = next((directory for directory in ONE_FILE_AT_A_TIME if nodeid.startswith(directory)), None)
        return shared or nodeid.partition("::")[0]

    @cached_property
    def _alone_groups(self) -> dict[str, str]:
        """By test. As many in each, but for one turn."""
        tests = filter(is_alone, self.collection or ())
        return {nodeid: f"alone {number // IN_A_ROW % ALONE_GROUPS}" for number, nodeid in enumerate(tests)}
