"""Jobs of a workload as the simulator takes them."""

from __future__ import annotations

from loadgen.dags.dag_job import DagJob
from loadgen.dags.resources import MACHINE, RESOURCES, shares
from scheduler.altruistic.dags import Dag, Group
from simulator.dags.play import Arrival
from sparrow_py.errors import InvalidOption

MEMORY = RESOURCES.index("memory_bytes")


def arrival_of(job: DagJob) -> Arrival:
    """The job, with demands as parts of a machine of the paper's cluster, in the order of `RESOURCES`. `InvalidOption`
    if a task needs more than one has."""
    for number, stage in enumerate(job.stages):
        for name, amount in stage.demand.items():
            if amount > MACHINE[name]:
                where = f"stages[{number}] demand {name} of job {job.name}"
                raise InvalidOption(where, f"{amount:g}", f"at most {MACHINE[name]:g}, what a machine has")
    groups = [Group(stage.tasks, shares(stage.demand), stage.duration_s, stage.parents) for stage in job.stages]
    return Arrival(job.arrival_s, job.name, Dag(groups), job.user)
