"""Mixes of users: the jobs of each user, alone and together, and mixes in files."""

import math
from pathlib import Path
from typing import Any

import pytest

from loadgen.arrivals import Rates
from loadgen.durations import Durations
from loadgen.mix import Mix, UserLoad, shared
from loadgen.workload_files import read_mix, read_workload
from sparrow_py.errors import InvalidOption, InvalidRequest

Z = 3.9
"""Normal quantile of a two-sided confidence of 99.99 %."""
TENTH = Durations("constant", 100.0)
ANN = UserLoad(user="ann", load=0.5, tasks=10, durations=TENTH)
BOB = UserLoad(user="bob", load=0.1, tasks=2, durations=TENTH)


def test_each_user_arrives_at_its_own_rate() -> None:
    """Of 40 slots ann uses 20, with 20 jobs a second of 1 s of work; bob uses 4, with 20 jobs a second of 0.2 s."""
    jobs = list(Mix((ANN, BOB), 100.0).generate(1, 10, 4))
    for user in ("ann", "bob"):
        count = sum(job.user == user for job in jobs)
        assert abs(count - 2000) < Z * math.sqrt(2000), user


def test_jobs_are_in_order_and_numbered() -> None:
    jobs = list(Mix((ANN, BOB), 20.0).generate(1, 10, 4))
    assert [job.number for job in jobs] == list(range(len(jobs)))
    assert [job.arrival_s for job in jobs] == sorted(job.arrival_s for job in jobs)


def test_the_jobs_of_a_user_do_not_depend_on_other_users() -> None:
    alone = [job.arrival_s for job in Mix((ANN,), 20.0).generate(1, 10, 4)]
    together = [job.arrival_s for job in Mix((BOB, ANN), 20.0).generate(1, 10, 4) if job.user == "ann"]
    assert alone == together


def test_shares_of_the_arrivals() -> None:
    loads = shared(0.8, {"ann": 3.0, "bob": 1.0}, ANN)
    assert [(load.user, load.load) for load in loads] == [("ann", pytest.approx(0.6)), ("bob", pytest.approx(0.2))]
    jobs = list(Mix(loads, 100.0).generate(1, 10, 4))
    of_ann = sum(job.user == "ann" for job in jobs)
    assert abs(of_ann - 0.75 * len(jobs)) < Z * math.sqrt(len(jobs) * 0.75 * 0.25)


def test_at_another_load_the_shares_stay() -> None:
    mix = Mix((ANN, BOB), 20.0).at_load(0.3)
    assert mix.load == pytest.approx(0.3)
    assert mix.loads[0].load / mix.loads[1].load == pytest.approx(5.0)


def test_the_constrained_fraction() -> None:
    mix = Mix((UserLoad(load=0.5, constrained=0.3, replicas=2, durations=TENTH),), 200.0)
    jobs = list(mix.generate(1, 10, 4))
    constrained = [job for job in jobs if job.preferred]
    assert abs(len(constrained) - 0.3 * len(jobs)) < Z * math.sqrt(len(jobs) * 0.3 * 0.7)
    assert all(len(set(nodes)) == 2 for job in constrained for nodes in job.preferred)


def test_regular_arrivals() -> None:
    mix = Mix((UserLoad(load=0.25, regular=True, durations=TENTH),), 2.0)
    assert [job.arrival_s for job in mix.generate(1, 10, 4)] == [pytest.approx(0.05 + 0.1 * n) for n in range(20)]


# ---- files -----------------------------------------------------------------------------------

FILE = """
seconds = 12
[[users]]
user = "ann"
load = 0.4
weight = 2
rates = [[0, 1], [6, 2.5]]
[[users]]
user = "bob"
load = 0.1
service = "constant"
mean_ms = 50
constrained = 0.5
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mix.toml"
    path.write_text(text)
    return str(path)


def test_a_mix_is_read(tmp_path: Path) -> None:
    mix = read_workload(written(tmp_path, FILE))
    assert isinstance(mix, Mix)
    ann, bob = mix.loads
    assert (mix.seconds, mix.users, mix.weights) == (12.0, ("ann", "bob"), {"ann": 2.0})
    assert (ann.load, ann.rates) == (0.4, Rates(((0.0, 1.0), (6.0, 2.5))))
    assert (bob.durations, bob.constrained) == (Durations("constant", 50.0), 0.5)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("seconds = 12", "seconds = 0", "seconds"),
        ("seconds = 12", "", "seconds"),
        ("load = 0.4", "load = -1", r"users\[0\] load"),
        ("load = 0.4", 'load = "x"', "load"),
        ("load = 0.4", "loud = 0.4", "loud"),
        ('service = "constant"', 'service = "normal"', r"users\[1\] service"),
        ('"bob"', '"ann"', "users"),
        ('"bob"', '""', r"users\[1\] user"),
        ("[6, 2.5]", "[0, 2.5]", r"users\[0\] rates"),
        ("[[users]]", "[users", "TOML"),
    ],
)
def test_errors_of_a_mix_name_the_field(tmp_path: Path, before: str, after: str, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named) as caught:
        read_mix(written(tmp_path, FILE.replace(before, after, 1)))
    assert "mix.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "fields", [{"load": 0.0}, {"tasks": 0}, {"weight": 0.0}, {"constrained": 2.0}, {"replicas": 0}]
)
def test_invalid_users_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(fields))):
        UserLoad(**fields)
