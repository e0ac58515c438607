"""Flow networks of clusters under Quincy's policy as studies make them: so full, so many preferences, some arrivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.flow.problem import Integers, Problem


@dataclass(frozen=True)
class QuincyGraph:
    """A cluster's flow network. Nodes: the sink, the cluster aggregator X, racks, machines, an aggregator of waiting
    tasks for each job, tasks. Arcs: those of tasks by task, then X to racks, racks to machines, machines to the sink,
    aggregators to the sink."""

    problem: Problem
    sink: int
    cluster: int
    racks: range
    machines: range
    waiting: range
    tasks: range
    first_arc: Integers
    """Shape (tasks + 1,): where the arcs of a task begin, and those of the last end."""
    running_on: Integers
    """Shape (tasks,): the machine's node, or -1 of tasks that wait. The arc to it is the task's last."""


def quincy_graph(
    machines: int,
    seed: int = 1,
    *,
    slots: int = 12,
    running: float = 0.9,
    arriving: float = 0.01,
    machines_per_rack: int = 40,
    tasks_per_job: int = 50,
    preferences_max: int = 10,
    skew: float = 0.0,
) -> QuincyGraph:
    """The graph of a cluster that is `running` full, to which `arriving` of its running tasks come anew.

    Each task prefers up to `preferences_max` machines (the popular ones, with `skew` up to 1), and their racks. Costs
    are those of Quincy (bytes over the rack's switch count once, over the core twice) in hundredths of a gigabyte;
    seconds that a task has run are added to its other arcs instead of taken from its running arc, which changes no
    placement and keeps costs positive.
    """
    chance = np.random.default_rng(seed)
    racks = -(-machines // machines_per_rack)
    running_count = int(machines * slots * running)
    count = running_count + max(1, int(running_count * arriving))
    jobs = -(-count // tasks_per_job)
    sink, cluster = 0, 1
    rack_0, machine_0 = 2, 2 + racks
    waiting_0 = machine_0 + machines
    task_0 = waiting_0 + jobs
    task = np.arange(count)

    input_size = np.clip(chance.lognormal(6.5, 1.2, count), 50, 11_500).astype(np.int64)
    running_s = np.where(task < running_count, chance.integers(0, 3600, count), 0)
    where = np.full(count, -1, np.int64)
    where[:running_count] = chance.permutation(machines * slots)[:running_count] // slots
    job = chance.permutation(count) // tasks_per_job

    # Preferences: each task's machines, none twice, and the share of its input that each has.
    wanted = chance.integers(0, preferences_max + 1, count)
    owner = np.repeat(task, wanted)
    place = np.minimum((chance.random(len(owner)) ** (1 / (1 - skew)) * machines).astype(np.int64), machines - 1)
    owner, place = np.unique(np.stack([owner, place]), axis=1)
    local = (input_size[owner] * (0.1 + 0.9 * chance.random(len(owner)))).astype(np.int64)
    keys, group = np.unique(np.stack([owner, place // machines_per_rack]), axis=1, return_inverse=True)
    group = group.ravel()
    in_rack = np.zeros(keys.shape[1], np.int64)
    np.add.at(in_rack, group, local)
    in_rack = np.minimum(in_rack, input_size[keys[0]])
    preferred_cost = 2 * (input_size[owner] - in_rack[group]) + np.maximum(in_rack[group] - local, 0)
    rack_cost = 2 * (input_size[keys[0]] - in_rack) + in_rack

    # Where a task runs it has read what it needs: as from the worst machine of the cluster at most.
    runs = task[:running_count]
    running_cost = (2 * input_size[runs] * chance.random(running_count)).astype(np.int64)
    waited = chance.integers(0, 600, count)
    anywhere = 2 * input_size + running_s
    out = [
        (owner, machine_0 + place, preferred_cost + running_s[owner]),
        (keys[0], rack_0 + keys[1], rack_cost + running_s[keys[0]]),
        (task, np.full(count, cluster), anywhere),
        (task, waiting_0 + job, anywhere + 2_000 + waited // 2),
        (runs, machine_0 + where[:running_count], running_cost),
    ]
    tail, head, cost = (np.concatenate([part[column] for part in out]) for column in range(3))
    by_task = np.argsort(tail, kind="stable")
    first_arc = np.searchsorted(tail[by_task], np.arange(count + 1))
    machine, rack = np.arange(machines), np.arange(racks)
    rack_slots = np.bincount(machine // machines_per_rack, minlength=racks) * slots
    below = [
        (np.full(racks, cluster), rack_0 + rack, rack_slots),
        (rack_0 + machine // machines_per_rack, machine_0 + machine, np.full(machines, slots)),
        (machine_0 + machine, np.full(machines, sink), np.full(machines, slots)),
        (waiting_0 + np.arange(jobs), np.full(jobs, sink), np.bincount(job, minlength=jobs)),
    ]
    arcs = len(tail) + sum(len(part[0]) for part in below)
    supply = np.zeros(task_0 + count, np.int64)
    supply[task_0:], supply[sink] = 1, -count
    problem = Problem(
        tail=np.concatenate([task_0 + tail[by_task], *(part[0] for part in below)]).astype(np.int64),
        head=np.concatenate([head[by_task], *(part[1] for part in below)]).astype(np.int64),
        cost=np.concatenate([cost[by_task], np.zeros(arcs - len(tail), np.int64)]).astype(np.int64),
        capacity=np.concatenate([np.ones(len(tail), np.int64), *(part[2] for part in below)]).astype(np.int64),
        minimum=np.zeros(arcs, np.int64),
        supply=supply,
    )
    return QuincyGraph(
        problem,
        sink,
        cluster,
        range(rack_0, machine_0),
        range(machine_0, waiting_0),
        range(waiting_0, task_0),
        range(task_0, task_0 + count),
        first_arc.astype(np.int64),
        np.where(where < 0, -1, machine_0 + where),
    )
