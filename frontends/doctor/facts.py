"""What `sparrow doctor` looks at, gathered. Times are in seconds; dates are seconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system that a directory lies on."""

    path: str
    why_not: str = ""
    """Why nothing can be written there; empty if something can."""
    size_bytes: int = 0
    free_bytes: int = 0
    """Of which an ordinary user can use so many."""
    is_missing: bool = False
    """Whether the directory itself is not there yet."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which the doctor runs."""

    python: str
    version: str
    """Of sparrow-py."""
    protocol: int
    files_max: int
    """How many files a process may have open, by the hard limit."""
    memory_bytes: int
    """Of the machine, or of the doctor's cgroup if that may have less; 0 if nobody says."""
    memory_free_bytes: int
    disks: tuple[Disk, ...] = ()


@dataclass(frozen=True, slots=True)
class Secret:
    """The token that is shown to daemons."""

    source: str
    """The file, or the variable of the environment; empty if there is no token."""
    why_not: str = ""
    """Why it cannot be read; empty if it can."""
    is_known: bool = True
    """Whether one of the tokens is there as it is, and not only its hash."""
    age_s: float | None = None
    """Since the file was written; None if there is no file."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that is shown or trusted."""

    subject: str
    """Whose: its file, or the address of the daemon that shows it."""
    why_not: str = ""
    """Why it will not do; empty if it will."""
    not_after_s: float | None = None
    """When it expires; None if nobody says."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What a daemon answered."""

    kind: str
    """scheduler or node monitor."""
    address: str
    why_not: str = ""
    """Why it does not answer; empty if it does."""
    is_other: bool = False
    """Whether something else answers there."""
    why_not_ready: str = ""
    refusal: str = ""
    """What it answers to who shows this token and certificate, if it refuses."""
    clock_ahead_s: float | None = None
    """Its clock's time less this machine's; None if it does not say."""
    clock_error_s: float = 0.0
    """How wrong that may be."""
    certificate: Certificate | None = None
    version: str = ""
    """Of sparrow-py; empty if it is too old to say."""
    protocol: int = 0
    nodes: tuple[dict[str, Any], ...] = ()
    """Those that a scheduler lists."""
    linked: tuple[str, ...] = ()
    """Addresses of the schedulers to which a node monitor's nodes are linked."""


@dataclass(frozen=True, slots=True)
class BlobTrip:
    """A few bytes that were sent to a node, and fetched from there."""

    node: str
    address: str
    not_sent: str = ""
    """Why they could not be sent; empty if they could."""
    not_fetched: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is there at the addresses."""

    named: bool
    """Whether somebody has named schedulers; else the doctor looks at the usual address."""
    unresolved: tuple[tuple[str, str], ...] = ()
    """Sources of addresses that name none, each with the reason."""
    schedulers: tuple[Visit, ...] = ()
    node_monitors: tuple[Visit, ...] = ()
    trips: tuple[BlobTrip, ...] = ()
    nodes_left_out: int = 0
    """Nodes that were not looked at, as there are so many."""
