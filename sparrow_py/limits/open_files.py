"""How many files a daemon may have open, and what they are for.

Every connection and link is an open file. A process that has no more of them accepts nobody, whoever asks, and cannot
even say so. So a daemon raises its soft limit to the hard one as it starts, and what it lets others open is a part of
that, with a part left for its own files, for node monitors and for operators.

Its executors get the soft limit back that it was started with: `select` takes no descriptor above 1023, and programs
that close all that they could have open take long over a million.
"""

from __future__ import annotations

import contextlib
import logging
import resource
from dataclasses import dataclass

log = logging.getLogger("sparrow.files")
CONNECTIONS_MAX = 4096
"""HTTP connections of a daemon; an eighth of its open files, if that is less."""
OWN_FILES = 64
"""What a daemon has open for itself: logs, sockets, libraries."""
UNLIMITED = 1 << 20
"""What is taken for the limit where there is none."""

_soft_before = 0
"""The soft limit before it was raised; 0 if this process has not raised it."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many connections of each kind there may be."""

    files: int
    connections: int
    readers: int
    clients: int
    """Links of clients."""
    links: int
    """Links of clients and node monitors together."""


def raise_limit() -> None:
    """Let this process have as many files open as it may. What the limit was is remembered for its children."""
    global _soft_before  # noqa: PLW0603 - as the limit itself, it is the process's
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNLIMITED if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(OSError, ValueError):  # The system has a limit of its own.
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _soft_before = soft


def soft_limit_before() -> int:
    """The soft limit that this process was started with, if it has raised it; else 0."""
    return _soft_before


def budget(files: int | None = None) -> Budget:
    """What `files` open files are for; by default as many as this process may have.

    An eighth are for HTTP connections, a sixteenth for readers of results, and all others but our own for links: of
    clients half of all files at most, so that nearly a third is left for node monitors.
    """
    if files is None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = UNLIMITED if soft == resource.RLIM_INFINITY else soft
    connections, readers = max(1, min(CONNECTIONS_MAX, files // 8)), max(1, files // 16)
    return Budget(files, connections, readers, max(1, files // 2), max(2, files - connections - readers - OWN_FILES))
