"""What a user's program was told, a line of JSON for each: written at once, by a single write, so that a program that
is killed leaves whole lines. What it is told twice is there twice."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.laboratory.jobs import Job


class Event(StrEnum):
    """`gone`: the scheduler of a job that came over HTTP has ended or forgot it. `over`: the program is at its end.
    `twice`: the session told of an outcome, an acceptance or an end a second time, or after the end."""

    LIFE = "life"
    SUBMITTED = "submitted"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    OUTCOME = "outcome"
    MAPPED = "mapped"
    GONE = "gone"
    TWICE = "twice"
    OVER = "over"


class Told(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A line. job: as its directory is called. spec: of the job that is submitted. mark: of the value, see `work.mark`.
    result_lost: it could not be fetched. status: as the report has it. suppressed: outcomes that came to the program
    again, and were told to nobody. at_ns: CLOCK_MONOTONIC."""

    event: Event
    at_ns: int
    job: str = ""
    task: int = -1
    status: str = ""
    attempts: int = 0
    node: str = ""
    error: str = ""
    mark: Any = None
    service_s: float | None = None
    stdout: str = ""
    result_lost: bool = False
    spec: Job | None = None
    suppressed: int = 0


class Writer:
    """The file of a program's life."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: Event, job: str = "", **more: Any) -> None:
        """One line."""
        line = msgspec.json.encode(Told(event=event, at_ns=time.monotonic_ns(), job=job, **more))
        os.write(self._descriptor, line + b"\n")


_decoder = msgspec.json.Decoder(Told)


def read(path: Path) -> Iterator[Told]:
    """The lines of a file."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield _decoder.decode(line)
