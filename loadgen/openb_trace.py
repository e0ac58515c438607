"""Reads traces in the format of Alibaba's GPU cluster of 2023 ("openb": nodes and pods as CSV with headings).

The data are for research and study; none are part of this repository.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loadgen.csv_rows import rows
from loadgen.jobs import WorkloadJob
from sparrow_py.errors import InvalidOption

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
    "deletion_time", "scheduled_time",
)  # fmt: skip
AMOUNT_MAX = 1_000_000_000
GPUS_MAX = 1_024
TIME_S_MAX = 1e12
USER = "user0"


@dataclass(frozen=True, slots=True)
class OpenbNode:
    """A line of the list of nodes. model: of its GPUs; "" if it has none."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class OpenbPod:
    """A line of the list of pods. gpu_milli: of the one GPU that it shares. models: of which its GPUs may be; empty:
    any. scheduled_s: None if it never was; deleted_s: None if it was not."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]
    qos: str
    phase: str
    created_s: float
    deleted_s: float | None
    scheduled_s: float | None


def read_nodes(path: str | Path) -> Iterator[OpenbNode]:
    """From a file."""
    for row in rows(path, NODE_COLUMNS, named=True):
        yield OpenbNode(
            row.text("sn"),
            row.whole("cpu_milli", 0, AMOUNT_MAX),
            row.whole("memory_mib", 0, AMOUNT_MAX),
            row.whole("gpu", 0, GPUS_MAX),
            row.text("model"),
        )


def read_pods(path: str | Path) -> Iterator[OpenbPod]:
    """From a file."""
    for row in rows(path, POD_COLUMNS, named=True):
        pod = OpenbPod(
            row.text("name"),
            row.whole("cpu_milli", 0, AMOUNT_MAX),
            row.whole("memory_mib", 0, AMOUNT_MAX),
            row.whole("num_gpu", 0, GPUS_MAX),
            row.whole("gpu_milli", 0, AMOUNT_MAX, missing=0),
            tuple(model for model in row.text("gpu_spec").split("|") if model),
            row.text("qos"),
            row.text("pod_phase"),
            row.real("creation_time", 0, TIME_S_MAX),
            row.real("deletion_time", 0, TIME_S_MAX) if row.text("deletion_time") else None,
            row.real("scheduled_time", 0, TIME_S_MAX) if row.text("scheduled_time") else None,
        )
        if pod.deleted_s is not None and pod.deleted_s < (pod.scheduled_s or pod.created_s):
            raise row.fault("deletion_time", f"a time from {pod.scheduled_s or pod.created_s:g} on, when it started")
        yield pod


def jobs_of(pods: Iterable[OpenbPod]) -> list[WorkloadJob]:
    """Each pod as a job of one task, in order of creation, from the first one's on; those that never ran are left out.

    One that was not deleted lasts until the last time that the list names. Label: its class of service.
    """
    listed = [pod for pod in pods if pod.scheduled_s is not None]
    last_s = max((max(pod.deleted_s or 0.0, pod.scheduled_s or 0.0) for pod in listed), default=0.0)
    jobs = []
    for number, pod in enumerate(sorted(listed, key=lambda pod: pod.created_s)):
        assert pod.scheduled_s is not None
        ended_s = last_s if pod.deleted_s is None else pod.deleted_s
        jobs.append(WorkloadJob(number, pod.created_s, USER, array("d", [ended_s - pod.scheduled_s]), label=pod.qos))
    return jobs


def read_openb_trace(path: str | Path) -> list[WorkloadJob]:
    """The jobs of a list of pods."""
    jobs = jobs_of(read_pods(path))
    if not jobs:
        raise InvalidOption("trace", str(path), "at least one pod that was scheduled")
    return jobs
