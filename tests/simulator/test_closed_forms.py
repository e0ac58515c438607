"""The closed forms of §4, held against exact sums, known values and each other."""

import itertools
import math
from fractions import Fraction

import pytest

from simulator.figures import closed_forms as forms


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("tasks", [1, 10, 100])
def test_with_one_probe_per_task_sampling_is_random_placement(load: float, tasks: int) -> None:
    assert forms.per_task_sampling(load, tasks, 1) == forms.random_placement(load, tasks)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_of_single_tasks_batch_sampling_is_per_task_sampling(load: float) -> None:
    assert forms.batch_sampling(load, 1, 2) == pytest.approx(forms.per_task_sampling(load, 1, 2), rel=1e-12)


def test_random_placement_of_table_2() -> None:
    assert forms.random_placement(0.25, 3) == pytest.approx(0.75**3)
    assert forms.random_placement(0.5, 2, cores=4) == pytest.approx((1 - 0.5**4) ** 2)


@pytest.mark.parametrize(("tasks", "ratio", "load"), [(3, 2, 0.5), (10, 2, 0.7), (7, 1.5, 0.3), (40, 4, 0.8)])
def test_batch_sampling_is_the_exact_binomial_tail_from_m(tasks: int, ratio: float, load: float) -> None:
    probes = math.ceil(ratio * tasks)
    busy = Fraction(str(load))
    exact = sum(
        math.comb(probes, idle) * (1 - busy) ** idle * busy ** (probes - idle) for idle in range(tasks, probes + 1)
    )
    assert forms.batch_sampling(load, tasks, ratio) == pytest.approx(float(exact), rel=1e-10)


def test_the_sum_from_0_that_the_paper_prints_would_be_1() -> None:
    assert forms.at_least(0, 20, 0.3) == 1.0
    assert forms.batch_sampling(0.7, 10, 2) < 0.05


@pytest.mark.parametrize("load", [1e-9, 0.01, 0.3, 0.5, 0.74, 0.76, 0.99, 1 - 1e-9])
def test_large_jobs_neither_overflow_nor_leave_the_unit_interval(load: float) -> None:
    share = forms.batch_sampling(load, 500, 4)
    assert 0.0 <= share <= 1.0
    if load <= 0.3:
        assert share == pytest.approx(1.0)
    if load >= 0.99:
        assert share == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    "form",
    [forms.random_placement, forms.per_task_sampling, forms.batch_sampling, forms.batch_sampling_of_full_machines],
)
def test_more_load_never_helps_and_more_cores_never_hurt(form: object) -> None:
    loads = [step / 50 for step in range(1, 50)]
    assert callable(form)
    for cores in (1, 2, 4, 8):
        shares = [form(load, 10, cores=cores) for load in loads]
        # Sums of rounded terms.
        assert all(a >= b - 1e-9 for a, b in itertools.pairwise(shares))
        more = [form(load, 10, cores=2 * cores) for load in loads]
        assert all(a <= b + 1e-9 for a, b in zip(shares, more, strict=True))


def test_the_paper_s_99_percent_of_10_task_jobs_on_4_core_machines_at_70_percent_load() -> None:
    assert forms.batch_sampling(0.7, 10, 2, cores=4) == pytest.approx(0.997, abs=0.001)


def test_cores_of_a_machine_are_not_independent_so_that_more_machines_are_full() -> None:
    assert forms.full_machines(0.7, 4) == pytest.approx(0.3245, abs=0.0001)
    assert forms.full_machines(0.7, 4) > 0.7**4
    assert forms.batch_sampling_of_full_machines(0.7, 10, 2, cores=4) == pytest.approx(0.969, abs=0.001)


@pytest.mark.parametrize("load", [0.1, 0.7, 0.95, 0.999])
def test_of_single_core_machines_the_load_s_share_is_full(load: float) -> None:
    assert forms.full_machines(load, 1) == pytest.approx(load, rel=1e-9)
    assert forms.random_placement_with_queues(load, 10) == pytest.approx(forms.random_placement(load, 10))


def test_erlang_b_at_known_values() -> None:
    assert forms.erlang_b(1, 1.0) == pytest.approx(0.5)
    assert forms.erlang_b(2, 1.0) == pytest.approx(0.2)
    # a^c/c! over the sum of a^k/k!.
    terms = [3.5**k / math.factorial(k) for k in range(6)]
    assert forms.erlang_b(5, 3.5) == pytest.approx(terms[-1] / sum(terms))


def test_random_placement_with_queues_is_erlang_s_delay_formula() -> None:
    load, cores = 0.3, 4
    offered = load * cores
    last = offered**cores / math.factorial(cores) / (1 - load)
    delayed = last / (sum(offered**k / math.factorial(k) for k in range(cores)) + last)
    assert forms.random_placement_with_queues(load, 10, cores) == pytest.approx((1 - delayed) ** 10)


def test_idle_while_asking_of_section_4_3() -> None:
    assert forms.idle_while_asking(2, 1.0, 100.0) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("wanted", "trials", "probability", "expected"), [(3, 2, 0.5, 0.0), (1, 2, 0.0, 0.0), (2, 2, 1.0, 1.0)]
)
def test_the_ends_of_the_binomial(wanted: int, trials: int, probability: float, expected: float) -> None:
    assert forms.at_least(wanted, trials, probability) == expected
