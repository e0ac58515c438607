"""Sparrow for Python: decentralised, low-latency scheduling of short parallel tasks.

The public API is what this module exports; it is loaded on first use, so that workers and
daemons import only what they need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrow_py.actor import ActorHandle, AsyncActorHandle
    from sparrow_py.async_client import AsyncClient, AsyncJob
    from sparrow_py.auth import TLS
    from sparrow_py.call_jobs import CallOptions, CallStage
    from sparrow_py.calls import ResultOf
    from sparrow_py.client import Client, Job
    from sparrow_py.cluster import LocalCluster, SchedulerHere
    from sparrow_py.cluster_nodes import NodeStatus
    from sparrow_py.errors import (
        ActorLost,
        ClusterError,
        InvalidOption,
        InvalidRequest,
        JobDetached,
        LinkError,
        NoScheduler,
        NotInTask,
        Refused,
        RemoteTraceback,
        ResultLost,
        SparrowError,
        TaskCancelled,
        TaskError,
        TaskFailed,
        TaskLost,
        WaitRefused,
    )
    from sparrow_py.executor import SparrowExecutor
    from sparrow_py.job import BlobRef, JobReport, JobSpec, RetryPolicy, StageSpec, TaskReport, TaskSpec, TaskStatus
    from sparrow_py.local_modules import LocalModule
    from sparrow_py.remote_cluster import SlurmCluster, SSHCluster
    from sparrow_py.speculation import Speculation
    from sparrow_py.stored_values import StoredValue
    from sparrow_py.task_context import NestedClientWarning, should_yield, wait_for_yield, yield_within_s

_HOMES = {
    "actor": ("ActorHandle", "AsyncActorHandle"),
    "async_client": ("AsyncClient", "AsyncJob"),
    "auth": ("TLS",),
    "call_jobs": ("CallOptions", "CallStage"),
    "calls": ("ResultOf",),
    "client": ("Client", "Job"),
    "cluster": ("LocalCluster", "SchedulerHere"),
    "cluster_nodes": ("NodeStatus",),
    "errors": (
        "ActorLost", "ClusterError", "InvalidOption", "InvalidRequest", "JobDetached", "LinkError", "NoScheduler",
        "NotInTask", "Refused", "RemoteTraceback", "ResultLost", "SparrowError", "TaskCancelled", "TaskError",
        "TaskFailed", "TaskLost", "WaitRefused",
    ),
    "executor": ("SparrowExecutor",),
    "job": ("BlobRef", "JobReport", "JobSpec", "RetryPolicy", "StageSpec", "TaskReport", "TaskSpec", "TaskStatus"),
    "local_modules": ("LocalModule",),
    "remote_cluster": ("SSHCluster", "SlurmCluster"),
    "speculation": ("Speculation",),
    "stored_values": ("StoredValue",),
    "task_context": ("NestedClientWarning", "should_yield", "wait_for_yield", "yield_within_s"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "TLS",
    "ActorHandle",
    "ActorLost",
    "AsyncActorHandle",
    "AsyncClient",
    "AsyncJob",
    "BlobRef",
    "CallOptions",
    "CallStage",
    "Client",
    "ClusterError",
    "InvalidOption",
    "InvalidRequest",
    "Job",
    "JobDetached",
    "JobReport",
    "JobSpec",
    "LinkError",
    "LocalCluster",
    "LocalModule",
    "NestedClientWarning",
    "NoScheduler",
    "NodeStatus",
    "NotInTask",
    "Refused",
    "RemoteTraceback",
    "ResultLost",
    "ResultOf",
    "RetryPolicy",
    "SSHCluster",
    "SchedulerHere",
    "SlurmCluster",
    "SparrowError",
    "SparrowExecutor",
    "Speculation",
    "StageSpec",
    "StoredValue",
    "TaskCancelled",
    "TaskError",
    "TaskFailed",
    "TaskLost",
    "TaskReport",
    "TaskSpec",
    "TaskStatus",
    "WaitRefused",
    "should_yield",
    "wait_for_yield",
    "yield_within_s",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
