"""The paper's experiments as presets: the settings that are varied, and the workload of each point.

All are for 100 node monitors of 4 slots and 10 schedulers on one machine, where tasks sleep: real work would need 400
cores. Numbers in parentheses are the paper's sections.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from loadgen.dags.live import TASK_MIN_S, LiveDags
from loadgen.durations import Durations
from loadgen.mix import Mix, UserLoad
from loadgen.point import Workload
from loadgen.queries import Queries
from loadgen.synthetic import Synthetic
from loadgen.targets import CENTRAL, PLACEMENTS
from loadgen.tpch import PAPER_QUERIES, REPLICAS, TpchLike, read_profile
from sparrow_py.errors import InvalidOption

TASKS = 10
"""Tasks of each job, in all experiments but TPC-H."""
SHARE_OF_SHARE = 0.75
"""The part of their share of the cluster that users 0 and 1 use (§7.3)."""
UNPLACED_TASKS_MAX = 100_000_000
"""Limit for an experiment in which a user's queue is to grow without end."""
LONG_PART, LONG_TASKS, LONG_MS = 0.8, 5, 15_000.0
"""Of mixed load: the part of it that long tasks bring, how many a job has, and how long each takes: by then they are
for policy flow (`job.FLOW_FROM_S`)."""
TPCH_USERS = 10
TPCH_MEAN_MS = 100.0
"""TPC-H tasks are stretched to this mean, if they are shorter: two cores can schedule only so many a second."""


@dataclass(frozen=True)
class Size:
    """The settings that a point's workload is made for. jobs: None for as many as arrive in `seconds`, on average.
    data: the directory of the data set that queries are run on; None: no queries are run."""

    nodes: int
    slots: int
    load: float
    duration_ms: float | None
    seconds: float
    jobs: int | None = None
    data: str | None = None


@dataclass(frozen=True, kw_only=True)
class Preset:
    """An experiment.

    loads, probe_ratios, durations_ms, placements: the values of these settings, of which every combination is a point;
    a duration of None is the workload's own. workload: makes a point's jobs. nodes_min, slots_min: the size that a
    cluster must have at least, in nodes and in slots of all nodes. simulated: whether the simulator can do the same.
    nodes, slots, schedulers: of the cluster that is started if the user does not say. policies: that jobs state, or
    schedulers of the altruistic plane; the first is what the others are compared with.
    """

    title: str
    loads: tuple[float, ...]
    workload: Callable[[Size], Workload | Queries]
    probe_ratios: tuple[float, ...] = (2.0,)
    durations_ms: tuple[float | None, ...] = (100.0,)
    placements: tuple[str, ...] = ("sparrow",)
    seconds: float = 20.0
    nodes_min: int = 1
    slots_min: int = TASKS
    unplaced_tasks_max: int | None = None
    simulated: bool = False
    nodes: int = 100
    slots: int = 4
    schedulers: int = 10
    policies: tuple[str, ...] = ("",)

    def check(self, nodes: int, slots: int) -> None:
        """`InvalidOption` if such a cluster is too small."""
        if nodes < self.nodes_min:
            raise InvalidOption("nodes", nodes, f"at least {self.nodes_min} nodes for this preset")
        if nodes * slots < self.slots_min:
            found = f"{nodes} nodes of {slots} slots"
            raise InvalidOption("nodes", found, f"at least {self.slots_min} slots for this preset")


def durations(size: Size) -> Durations:
    """Tasks that all take the point's duration."""
    assert size.duration_ms is not None
    return Durations("constant", size.duration_ms)


def jobs_of(size: Size, jobs_per_s: float) -> int:
    """The number of jobs: that of the size, or as many as arrive in its seconds at this rate."""
    return size.jobs if size.jobs is not None else max(1, math.ceil(size.seconds * jobs_per_s))


def alike(size: Size) -> Synthetic:
    """Jobs of 10 tasks that arrive as a Poisson process (§7.1)."""
    assert size.duration_ms is not None
    jobs_per_s = size.load * size.nodes * size.slots / (TASKS * size.duration_ms / 1000)
    return Synthetic(tasks=TASKS, load=size.load, jobs=jobs_of(size, jobs_per_s), durations=durations(size))


def three_users(size: Size) -> Mix:
    """Users 0 and 1 submit 75 % of their third of the cluster, user 2 the rest of the load (§7.3)."""
    own = SHARE_OF_SHARE / 3
    if not 2 * own < size.load:
        raise InvalidOption("load", size.load, f"above {2 * own:g}, which users 0 and 1 bring: user 2 brings the rest")
    return _mix(
        size,
        tuple(
            UserLoad(user=f"user{number}", load=load, tasks=TASKS, durations=durations(size))
            for number, load in enumerate((own, own, size.load - 2 * own))
        ),
    )


def regular(size: Size) -> Mix:
    """Jobs at equal distances (§7.4), for long enough that some end."""
    return _mix(size, (UserLoad(load=size.load, tasks=TASKS, durations=durations(size), regular=True),))


def _mix(size: Size, loads: tuple[UserLoad, ...]) -> Mix:
    """The users' jobs for the size's seconds, or for the time in which they bring its number of jobs on average."""
    seconds = size.seconds
    if size.jobs is not None:
        seconds = size.jobs / sum(load.jobs_per_s(size.nodes, size.slots) for load in loads)
    return Mix(loads, seconds)


def mixed(size: Size) -> Mix:
    """Short jobs of one user, and long tasks of another, that bring most of the load: by sampling alone a short task
    may find only slots that long ones hold."""
    assert size.duration_ms is not None
    short, long = (1 - LONG_PART) * size.load, LONG_PART * size.load
    return _mix(
        size,
        (
            UserLoad(user="short", load=short, tasks=TASKS, durations=durations(size), states_mean=True),
            UserLoad(
                user="long", load=long, tasks=LONG_TASKS, durations=Durations("constant", LONG_MS), states_mean=True
            ),
        ),
    )


def tpch(size: Size) -> TpchLike:
    """10 users launch permutations of the paper's queries (§7.2) as recorded, stretched so that tasks take the point's
    duration on average, or `TPCH_MEAN_MS` if theirs is less and none is stated."""
    profile = read_profile().only(PAPER_QUERIES)
    mean_ms = 1000 * profile.mean_task_s()
    wanted_ms = size.duration_ms if size.duration_ms is not None else max(mean_ms, TPCH_MEAN_MS)
    workload = TpchLike(profile=profile, users=TPCH_USERS, load=size.load, stretch=wanted_ms / mean_ms)
    return workload.with_jobs(jobs_of(size, workload.jobs_per_s(size.nodes, size.slots)))


def dags(size: Size) -> LiveDags:
    """TPC-H's queries from plans with joins, of data of several scales, whose shortest tasks take the point's duration
    (paper 002, §5.1)."""
    task_min_s = TASK_MIN_S if size.duration_ms is None else size.duration_ms / 1000
    workload = LiveDags(load=size.load, jobs=1, task_min_s=task_min_s)
    return replace(workload, jobs=jobs_of(size, workload.jobs_per_s(size.nodes * size.slots)))


def queries(size: Size) -> Queries:
    """10 users launch permutations of the paper's queries (§7.2), which are executed on real data."""
    if size.data is None:
        raise InvalidOption("data", "none", "the directory of a data set, from `sparrow sql generate --dir DIR`")
    if size.duration_ms is not None:
        raise InvalidOption("duration", size.duration_ms, "nothing with this preset: queries take as long as they take")
    return Queries(
        directory=size.data, users=TPCH_USERS, load=size.load, seconds=size.seconds, jobs=size.jobs
    )  # fmt: skip


PRESETS: dict[str, Preset] = {
    "dags": Preset(
        title="Jobs of several stages: the altruistic plane beside DRF",
        loads=(1.2,),
        durations_ms=(None,),
        policies=("drf", "altruistic"),
        workload=dags,
        seconds=60.0,
        nodes=20,
        slots=5,
        schedulers=1,
    ),
    "fig9": Preset(
        title="Figure 9: probe ratio and load, 10-task jobs of 100 ms",
        loads=(0.3, 0.5, 0.7),
        probe_ratios=(1.0, 1.1, 1.5, 2.0, 3.0),
        workload=alike,
        simulated=True,
    ),
    "fig10": Preset(
        title="Figures 10 and 11: TPC-H-like queries at 65 % load, by placement",
        loads=(0.65,),
        durations_ms=(None,),
        placements=tuple(name for name in PLACEMENTS if name != CENTRAL),
        workload=tpch,
        seconds=60.0,
        nodes_min=REPLICAS,
    ),
    "fig12": Preset(
        title="Figure 12: running tasks of three users, one over its share",
        loads=(1.0,),
        workload=three_users,
        seconds=30.0,
        unplaced_tasks_max=UNPLACED_TASKS_MAX,
    ),
    "fig13": Preset(
        title="Figure 13: response time by task duration at 25 % load, sampling and a central scheduler",
        loads=(0.25,),
        placements=("sparrow", CENTRAL),
        durations_ms=(2000.0, 1000.0, 500.0, 200.0, 100.0, 50.0, 30.0, 20.0),
        workload=regular,
        seconds=15.0,
    ),
    "mixed": Preset(
        title="Short jobs beside long tasks: all sampled, and long ones placed by policy flow",
        loads=(0.8,),
        policies=("sparrow", "auto"),
        workload=mixed,
        seconds=60.0,
        nodes=20,
        slots=10,
        schedulers=2,
    ),
    "queries": Preset(
        title="Figures 10 and 11, table 3: queries of the sql framework, executed, by placement",
        loads=(0.2,),
        durations_ms=(None,),
        placements=("sparrow", "random"),
        workload=queries,
        seconds=60.0,
        nodes_min=REPLICAS,
        slots_min=REPLICAS,
        nodes=4,
        slots=1,
        schedulers=2,
    ),
    "table3": Preset(
        title="Table 3: the stages of TPC-H-like queries at 65 % load",
        loads=(0.65,),
        durations_ms=(None,),
        workload=tpch,
        seconds=60.0,
        nodes_min=REPLICAS,
    ),
    "table4": Preset(
        title="Table 4: three users, one over its share; and all within theirs",
        loads=(1.0, 3 * SHARE_OF_SHARE / 3),
        workload=three_users,
        seconds=30.0,
        unplaced_tasks_max=UNPLACED_TASKS_MAX,
    ),
}
