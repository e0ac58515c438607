"""Jobs of two sizes."""

import pytest

from loadgen.synthetic import Synthetic
from sparrow_py.errors import InvalidOption

NODES, SLOTS = 100, 2


def test_a_share_of_the_jobs_is_large_and_the_load_is_what_was_asked_for() -> None:
    workload = Synthetic(tasks=10, large=0.1, large_tasks=400, load=0.5, jobs=4000)
    jobs = list(workload.generate(1, NODES, SLOTS))
    sizes = [len(job.durations_s) for job in jobs]
    assert set(sizes) == {10, 400}
    assert sizes.count(400) == pytest.approx(400, abs=4 * 19)  # Four standard deviations of a binomial.
    work_s = sum(sum(job.durations_s) for job in jobs)
    assert work_s / (jobs[-1].arrival_s * NODES * SLOTS) == pytest.approx(0.5, rel=0.2)


def test_the_arrivals_do_not_depend_on_which_jobs_are_large() -> None:
    some = Synthetic(tasks=10, large=0.5, large_tasks=10, jobs=50).generate(3, NODES, SLOTS)
    none = Synthetic(tasks=10, jobs=50).generate(3, NODES, SLOTS)
    assert [(job.arrival_s, job.durations_s) for job in some] == [(job.arrival_s, job.durations_s) for job in none]


@pytest.mark.parametrize(("name", "value"), [("large", -0.1), ("large", 1.1), ("large_tasks", 0)])
def test_invalid_sizes_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidOption, match=name):
        Synthetic(**{name: value})
