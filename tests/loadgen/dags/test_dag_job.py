"""A DAG job: what follows from its stages, and what is refused."""

from typing import Any

import pytest

from loadgen.dags.dag_job import STAGES_MAX, TASKS_MAX, DagJob, DagStage
from loadgen.dags.resources import CPU, MACHINE, MEMORY, RESOURCES, TASK_SHARE_MAX, bounded, shares
from sparrow_py.errors import InvalidOption

ONE = {CPU: 1.0}


def stage(*parents: int, tasks: int = 1, duration_s: float = 1.0, demand: Any = ONE) -> DagStage:
    return DagStage(tasks, duration_s, demand, parents)


def test_the_figures_of_a_job() -> None:
    """Two inputs are joined, and the join and one input once more."""
    inputs = (stage(tasks=3, duration_s=2.0), stage(duration_s=4.0))
    job = DagJob("j", 0.0, (*inputs, stage(0, 1, duration_s=5.0), stage(1, 2, duration_s=5.0)))
    assert (job.tasks, job.barriers, job.depth) == (6, 2, 3)
    assert (job.work_s, job.input_work, job.critical_path_s) == (20.0, 0.5, 14.0)


@pytest.mark.parametrize(
    ("field", "stages"),
    [
        ("stages[0] tasks", (stage(tasks=0),)),
        ("stages[0] duration_s", (stage(duration_s=0.0),)),
        ("stages[0] duration_s", (stage(duration_s=float("nan")),)),
        ("stages[0] demand", (stage(demand={}),)),
        ("stages[0] demand", (stage(demand={"gpu": 1.0}),)),
        (f"stages[0] demand {CPU}", (stage(demand={CPU: -1.0}),)),
        (f"stages[0] demand {CPU}", (stage(demand={CPU: float("inf")}),)),
        ("stages[1] parents", (stage(), stage(1))),
        ("stages[1] parents", (stage(), stage(0, 0))),
        ("stages[0] parents", (stage(-1),)),
        ("stages", ()),
        ("stages", (stage(),) * (STAGES_MAX + 1)),
        ("tasks", (stage(tasks=TASKS_MAX), stage())),
    ],
)
def test_stages_that_cannot_be_are_refused_by_name(field: str, stages: tuple[DagStage, ...]) -> None:
    with pytest.raises(InvalidOption) as error:
        DagJob("j", 0.0, stages)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("field", "values"), [("arrival_s", {"arrival_s": -1.0}), ("name", {"name": ""}), ("user", {"user": "u" * 201})]
)
def test_jobs_that_cannot_be_are_refused_by_name(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as error:
        DagJob(**{"name": "j", "arrival_s": 0.0, "stages": (stage(),)} | values)
    assert error.value.field == field


def test_demands_are_shares_of_the_papers_machine_and_bounded() -> None:
    assert shares({CPU: 10.0, MEMORY: 32e9}) == (0.5, 0.25, 0.0, 0.0, 0.0, 0.0)
    most = bounded(dict.fromkeys(RESOURCES, 1e15))
    assert shares(most) == (TASK_SHARE_MAX,) * len(MACHINE)
