"""GNU parallel and xargs."""

from __future__ import annotations

from benchmarks.habits.gnu_parallel import PARALLEL, XARGS, argv_of
from benchmarks.peers.peer import Tool


class GnuParallel(Tool):
    """A Perl program."""

    name = PARALLEL
    programs = {"parallel": "apt-get install parallel"}  # noqa: RUF012

    def command(self, at_once: int) -> list[str]:
        """One command a line."""
        return argv_of(PARALLEL, at_once)


class Xargs(Tool):
    """A C program that starts commands, and does nothing else."""

    name = XARGS
    shown_only = True
    programs = {"xargs": "apt-get install findutils"}  # noqa: RUF012

    def command(self, at_once: int) -> list[str]:
        """One command a line."""
        return argv_of(XARGS, at_once)
