"""Workloads of DAG jobs in files: a job a line, in order of arrival.

A line is an object: `name`, `arrival_s`, `stages`, and if wanted `user` and `label`. A stage has `tasks`, `duration_s`,
`demand` (amounts by resource, of each task), and if wanted `parents` (numbers of stages before it, from 0) and `kind`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import BinaryIO

import msgspec

from loadgen.dags.dag_job import DagJob, DagStage
from sparrow_py.errors import InvalidOption

LINE_BYTES_MAX = 4_000_000
JOBS_MAX = 1_000_000
"""Of a file."""


class _Stage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    tasks: int
    duration_s: float
    demand: dict[str, float]
    parents: tuple[int, ...] = ()
    kind: str = ""


class _Job(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    arrival_s: float
    stages: list[_Stage]
    user: str = "user0"
    label: str = ""


def as_line(job: DagJob) -> bytes:
    """The job as a line, without its end."""
    stages = [
        _Stage(
            stage.tasks,
            stage.duration_s,
            {resource: amount for resource, amount in stage.demand.items() if amount},
            stage.parents,
            stage.kind,
        )
        for stage in job.stages
    ]
    return msgspec.json.encode(_Job(job.name, job.arrival_s, stages, job.user, job.label))


def write_dags(path: str, jobs: Iterable[DagJob]) -> int:
    """Write a workload, whole or not at all; how many jobs it has."""
    whole = Path(path)
    part = whole.with_name(whole.name + ".part")
    written = 0
    try:
        with part.open("wb") as file:
            for job in jobs:
                file.write(as_line(job) + b"\n")
                written += 1
        part.replace(whole)
    except OSError as error:
        raise InvalidOption("out", path, f"a file that can be written ({error.strerror})") from None
    finally:
        part.unlink(missing_ok=True)
    return written


def read_dags(path: str) -> Iterator[DagJob]:
    """The jobs of a file; `InvalidOption` names the line and the field that cannot be."""
    decoder = msgspec.json.Decoder(_Job)
    before_s = 0.0
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(_lines(path, file), 1):
                if not line.strip():
                    continue
                job = _parsed(f"{path}:{number}", line, decoder)
                if job.arrival_s < before_s:
                    raise InvalidOption(
                        f"{path}:{number} arrival_s", job.arrival_s, f"seconds from the previous job's on, {before_s}"
                    )
                before_s = job.arrival_s
                yield job
    except OSError as error:
        raise InvalidOption("workload", path, f"a readable file ({error.strerror})") from None


def _lines(path: str, file: BinaryIO) -> Iterator[bytes]:
    for number in count(1):
        line = file.readline(LINE_BYTES_MAX + 1)
        if not line:
            return
        if len(line) > LINE_BYTES_MAX:
            raise InvalidOption(f"{path}:{number}", line[:40].decode("utf-8", "replace"), f"{LINE_BYTES_MAX:,} bytes")
        if number > JOBS_MAX:
            raise InvalidOption("workload", path, f"at most {JOBS_MAX:,} lines")
        yield line


def _parsed(where: str, line: bytes, decoder: msgspec.json.Decoder[_Job]) -> DagJob:
    try:
        given = decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidOption(where, line[:40].decode("utf-8", "replace"), f"a job as JSON ({error})") from None
    stages = tuple(
        DagStage(stage.tasks, stage.duration_s, stage.demand, stage.parents, stage.kind) for stage in given.stages
    )
    try:
        return DagJob(given.name, given.arrival_s, stages, given.user, given.label)
    except InvalidOption as error:
        raise InvalidOption(f"{where} {error.field}", error.value, error.allowed) from None
