"""`get`: a whole Dask graph as a job of stages, whose results go from node to node."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from dask.core import flatten
from dask.local import get_sync, nested_get
from dask.utils import key_split

from sparrow_py.call_jobs import CallOptions, CallStage, checked_options
from sparrow_py.calls import ResultOf
from sparrow_py.client import Client, Job
from sparrow_py.dask.callbacks import Told, telling
from sparrow_py.dask.graphs import Graph, described, prepared
from sparrow_py.dask.planning import planned_stages
from sparrow_py.futures.task_future import TaskFuture
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.kept_clients import client_for

if TYPE_CHECKING:
    from sparrow_py.cluster import LocalCluster

NAME_OF_JOBS = "dask"
STAGE_NAME_CHARS_MAX = 40
"""Of the name of a stage's first task, in the stage's name."""


def get(
    dsk: Any,
    keys: Any,
    *,
    client: Client | None = None,
    cluster: LocalCluster | None = None,
    addresses: str | Sequence[str] | None = None,
    options: CallOptions | None = None,
    callbacks: Any = None,
) -> Any:
    """Compute keys of a Dask graph, as Dask asks its schedulers to: `dask.compute(x, scheduler=sparrow_py.dask.get)`.

    Parameters
    ----------
    dsk: the graph. keys: a key, or (nested) lists of keys.
    client: whose tasks these are. Or `cluster`, the `LocalCluster`, or `addresses`, the schedulers, for which a client
        is made and kept. Without any: the schedulers that SPARROW_SCHEDULER names, or else an embedded cluster of this
        machine's cores, which lasts until the program ends (`close_clients`).
    options: how the tasks are run; default: the client's.
    callbacks: of Dask, in place of those that are active.

    Returns the value of a key, and (nested) tuples of values for lists. Raises a failed task's own exception, with a
    note that has its key; `InvalidRequest` for a graph that cannot be.

    In a task the client is the task's own (`Client.current`), and the task gives its slot back while it waits; where
    tasks have none the graph is computed in the task itself, one Dask task after the other.
    """
    wanted = set(flatten(keys)) if isinstance(keys, list) else {keys}
    found = client_for(client, cluster, addresses)
    if found is None:
        return get_sync(dsk, keys, callbacks=callbacks)
    graph = prepared(dsk, wanted)
    options = checked_options(options, found.options)
    with telling(callbacks, graph.nodes) as told:
        while graph.nodes:
            _run_some(found, options, graph, wanted, told)
    return nested_get(keys, {key: graph.known[graph.target(key)] for key in wanted})


def _run_some(client: Client, options: CallOptions, graph: Graph, wanted: set[Hashable], told: Told) -> None:
    """Run as many levels of the graph as a job may have: nearly always, all.

    What is wanted, or needed by tasks that are left, becomes known; what has been run is taken out.
    """
    stages = planned_stages(graph.inputs())
    job = client.submit_stages(_call_stages(graph, stages), name=NAME_OF_JOBS, options=options)
    keys = [key for stage in stages for key in stage]
    told.submitted(keys)
    _wait(job, keys, graph, told)
    left = graph.nodes.keys() - set(keys)
    needed = {graph.target(key) for key in wanted}.union(*(graph.names(key).values() for key in left))
    for key, future in zip(keys, job.futures, strict=True):
        del graph.nodes[key]
        if key in needed:
            graph.known[key] = _value(client, future)


def _call_stages(graph: Graph, stages: list[list[Hashable]]) -> list[CallStage]:
    """Each task is a call of Dask's own task, with the values that it needs."""
    names = [f"{_readable(key_split(stage[0]))} {number}" for number, stage in enumerate(stages)]
    places: dict[Hashable, ResultOf] = {
        key: ResultOf(name, task) for name, stage in zip(names, stages, strict=True) for task, key in enumerate(stage)
    }

    def arguments(key: Hashable) -> tuple[Any, dict[Hashable, Any]]:
        values = {
            name: places[target] if target in places else graph.known[target]
            for name, target in graph.names(key).items()
        }
        return graph.nodes[key], values

    return [
        CallStage(name, operator.call, [arguments(key) for key in stage])
        for name, stage in zip(names, stages, strict=True)
    ]


def _readable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())[:STAGE_NAME_CHARS_MAX]


def _wait(job: Job, keys: list[Hashable], graph: Graph, told: Told) -> None:
    """Return once all tasks have finished. If one has not, raise its exception, and stop the others."""
    cancelled: TaskFuture | None = None
    for future in job:
        key = keys[future.task]
        if future.outcome is None:  # No scheduler has taken the job.
            future.result()
        elif future.outcome.status is TaskStatus.FINISHED:
            told.finished(key, future.outcome.node)
        elif future.cancelled():  # As the tasks before it have failed: that is told of, too.
            cancelled = future
        else:
            job.cancel(running=True)
            _raise(future, graph.nodes[key])
    if cancelled is not None:
        _raise(cancelled, graph.nodes[keys[cancelled.task]])


def _raise(future: TaskFuture, node: Any) -> None:
    """Raise a failed task's exception, with its key."""
    try:
        future.result()
    except Exception as error:
        error.add_note(f"raised by the Dask task {described(node)}")
        raise


def _value(client: Client, future: TaskFuture) -> Any:
    """A finished task's value. A large one of a task that others needed lies at a node still."""
    value = future.result()
    if future.outcome is not None and isinstance(future.outcome.result, BlobRef) and isinstance(value, BlobRef):
        return pickle.loads(client.fetch(value))
    return value
