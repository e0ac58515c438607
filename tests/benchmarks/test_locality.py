"""The benchmark of delay scheduling: where replicas are, what counts as local, and what its value is of."""

from __future__ import annotations

import pytest

from benchmarks.locality import NODES, SLOTS, Case, gain, rows, simulated, workload

FIRM = Case("random", 0.9, None, 1.0, 40, 1)


def test_replicas_are_random_or_striped() -> None:
    for job in workload(FIRM).generate(1, NODES, SLOTS):
        assert all(len(set(nodes)) == 3 for nodes in job.preferred)
    for job in workload(FIRM._replace(layout="striped")).generate(1, NODES, SLOTS):
        nodes = [node for own in job.preferred for node in own]
        first = nodes[0]
        assert nodes == [(first + number) % NODES for number in range(30)]


def test_skewed_replicas_are_half_on_a_fifth_of_the_nodes() -> None:
    jobs = list(workload(FIRM._replace(layout="skewed", jobs=200)).generate(1, NODES, SLOTS))
    hot = [all(node < NODES // 5 for node in nodes) for job in jobs for nodes in job.preferred]
    assert all(min(nodes) >= NODES // 5 for job in jobs for nodes in job.preferred if max(nodes) >= NODES // 5)
    assert 900 < sum(hot) < 1100  # 1000 of 2000; 22 is a standard deviation.


@pytest.mark.rest
def test_firm_tasks_are_local_and_others_are_not_all_and_take_longer_elsewhere() -> None:
    firm = simulated(FIRM)
    assert firm["local"] == 1.0
    soft = simulated(FIRM._replace(delay_ms=0.0))
    assert 0 < soft["local"] < 0.5
    remote = simulated(FIRM._replace(delay_ms=0.0, remote=3.0))
    assert remote["mean_ms"] > 1.5 * soft["mean_ms"]


def test_the_value_is_what_the_first_delay_makes_of_the_mean_at_the_highest_load() -> None:
    def figures(mean_ms: float) -> dict[str, float]:
        return {"mean_ms": mean_ms, "p50_ms": 1.0, "p95_ms": 2.0, "local": 0.5}

    cases = [one._replace(load=load) for load in (0.5, 0.9) for one in (FIRM, FIRM._replace(delay_ms=20.0),
             FIRM._replace(delay_ms=20.0, remote=2.0))]  # fmt: skip
    found = dict(zip(cases, map(figures, (1.0, 1.0, 1.0, 200.0, 150.0, 400.0)), strict=True))
    assert gain(found, cases) == -25.0
    table = list(rows(found, "random", (0.5, 0.9)))
    assert [row["delay"] for row in table] == ["firm", "20 ms", "20 ms"] * 2
    assert table[-1] | {"local": "50.0 %", "mean": "400 ms", "remote": "2 ×"} == table[-1]
