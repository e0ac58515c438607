"""TPC-H-like workloads: permutations, load, durations of recorded runs, places; and the command that writes them."""

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.__main__ import main
from loadgen.tpch import REPLICAS, TpchLike, partition_nodes, read_profile
from loadgen.traces import read_trace
from sparrow_py.errors import InvalidOption

Z = 3.9
"""Normal quantile of a two-sided confidence of 99.99 %."""
QUERIES: dict[str, Any] = {
    "q3": {
        "stages": [
            {"name": "scan", "after": [], "constrained": True, "durations_s": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]},
            {"name": "group", "after": ["scan"], "constrained": False, "durations_s": [[0.01], [0.02], [0.03]]},
        ]
    },
    "q6": {"stages": [{"name": "scan", "after": [], "constrained": True, "durations_s": [[0.2, 0.2, 0.2]]}]},
    "q12": {"stages": [{"name": "scan", "durations_s": [[0.1]]}]},
}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return written(tmp_path, QUERIES)


def written(tmp_path: Path, queries: Any) -> Path:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"source": {"made": "up"}, "queries": queries}))
    return path


def test_each_user_launches_permutations_of_the_queries(profile: Path) -> None:
    workload = TpchLike(profile=read_profile(profile), users=4, jobs=400)
    by_user: dict[str, list[str]] = {}
    for job in workload.generate(1, 20, 4):
        by_user.setdefault(job.user, []).append(job.label)
    assert sorted(by_user) == ["user0", "user1", "user2", "user3"]
    orders = set()
    for labels in by_user.values():
        rounds = [tuple(labels[first : first + 3]) for first in range(0, len(labels) - 2, 3)]
        assert all(sorted(each) == ["q12", "q3", "q6"] for each in rounds)
        orders.update(rounds)
    assert len(orders) == 6, "all permutations"


def test_the_rate_makes_the_load(profile: Path) -> None:
    workload = TpchLike(profile=read_profile(profile), jobs=4000, load=0.5, stretch=2.0)
    jobs = list(workload.generate(1, 20, 4))
    expected_s = 1 / workload.jobs_per_s(20, 4)
    mean_s = jobs[-1].arrival_s / len(jobs)
    assert abs(mean_s - expected_s) < Z * expected_s / math.sqrt(len(jobs))
    mean_work_s = sum(sum(job.durations_s) for job in jobs) / len(jobs)
    assert workload.mean_work_s() == pytest.approx(2 * (0.72 + 0.6 + 0.1) / 3)
    assert mean_work_s == pytest.approx(workload.mean_work_s(), rel=0.05)


def test_a_query_has_the_durations_of_one_recorded_run(profile: Path) -> None:
    workload = TpchLike(profile=read_profile(profile), jobs=600, stretch=10.0)
    runs = Counter(tuple(job.durations_s) for job in workload.generate(1, 20, 4) if job.label == "q3")
    assert set(runs) == {(1.0, 2.0, 0.1), (3.0, 4.0, 0.2), (5.0, 6.0, 0.3)}
    for count in runs.values():
        assert abs(count - 200 / 3) < Z * math.sqrt(200 * 2 / 9)


def test_constrained_tasks_prefer_the_nodes_of_their_partition(profile: Path) -> None:
    partitions: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    for job in TpchLike(profile=read_profile(profile), users=2, jobs=200).generate(1, 20, 4):
        for stage, tasks in job.ranges():
            for task in tasks:
                preferred = job.preferred[task] if job.preferred else ()
                constrained = stage.name == "scan" and job.label != "q12"
                assert len(set(preferred)) == (REPLICAS if constrained else 0)
                if constrained:
                    partitions.setdefault((job.user, task - tasks.start), set()).add(preferred)
    assert len(partitions) == 6
    assert all(len(places) == 1 for places in partitions.values()), "a user's data stay where they are"


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 40), st.integers())
def test_striped_nodes_have_as_many_replicas_as_each_other_or_one_more(
    partitions: int, replicas: int, nodes: int, seed: int
) -> None:
    of_partitions = partition_nodes(partitions, replicas, nodes, random.Random(seed))
    assert len(of_partitions) == partitions
    assert all(len(places) == len(set(places)) == min(replicas, nodes) for places in of_partitions)
    # Of the first partitions, too: a stage may read fewer than another.
    for first in range(1, partitions + 1):
        counts = Counter(dict.fromkeys(range(nodes), 0))
        counts.update(node for places in of_partitions[:first] for node in places)
        assert len(counts) == nodes
        assert max(counts.values()) - min(counts.values()) <= 1


def test_the_papers_data_lie_on_90_of_100_nodes_of_each_user_on_others() -> None:
    places = random.Random(1)
    of_users = [{node for nodes in partition_nodes(30, 3, 100, places) for node in nodes} for _ in range(10)]
    assert {len(nodes) for nodes in of_users} == {90}
    assert len({frozenset(nodes) for nodes in of_users}) == 10


def test_queries_of_a_user_read_striped_data_unless_it_is_to_be_random() -> None:
    def most_and_least(data: str) -> list[tuple[int, int]]:
        workload = TpchLike(profile=read_profile().only(["q6"]), users=3, jobs=30, data=data)
        by_user: dict[str, tuple[tuple[int, ...], ...]] = {}
        for job in workload.generate(1, 10, 4):
            assert by_user.setdefault(job.user, job.preferred) == job.preferred
        counts = [Counter(node for nodes in preferred for node in nodes) for preferred in by_user.values()]
        return [(max(count.values()), min(count.values())) for count in counts]

    assert most_and_least("striped") == [(9, 9)] * 3
    assert all(most > least + 1 for most, least in most_and_least("random"))
    with pytest.raises(InvalidOption, match=r"data.*'even'.*striped or random"):
        TpchLike(profile=read_profile(), data="even")


def test_stages_come_after_the_stages_that_they_wait_for(profile: Path) -> None:
    job = next(job for job in TpchLike(profile=read_profile(profile), jobs=50).generate(1, 20, 4) if job.label == "q3")
    assert [(stage.name, stage.after, stage.tasks) for stage in job.stages] == [
        ("scan", (), 2),
        ("group", ("scan",), 1),
    ]


def test_the_command_writes_a_trace_that_is_read_as_it_was_made(profile: Path, tmp_path: Path) -> None:
    out = tmp_path / "queries.jsonl"
    arguments = ["trace", "tpch", "--recorded", str(profile), "--jobs", "30", "--nodes", "20", "--load", "0.5"]
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--users", "3", "--seed", "7", "--queries", "all", "--out", str(out)])
    assert caught.value.code == 0
    workload = TpchLike(profile=read_profile(profile), users=3, load=0.5, jobs=30)
    assert list(read_trace(str(out)).lines) == list(workload.generate(7, 20, 4))


def test_only_the_chosen_queries_are_launched(profile: Path) -> None:
    workload = TpchLike(profile=read_profile(profile).only(["q6"]), users=2, jobs=20)
    assert {job.label for job in workload.generate(1, 20, 4)} == {"q6"}
    with pytest.raises(InvalidOption, match=r"queries.*'q7'.*q3, q6, q12"):
        read_profile(profile).only(["q6", "q7"])


def changed(**stage: Any) -> dict[str, Any]:
    """The queries, with these fields changed in the second stage of q3."""
    scan, group = QUERIES["q3"]["stages"]
    return {"q3": {"stages": [scan, {**group, **stage}]}}


@pytest.mark.parametrize(
    ("queries", "named"),
    [
        ({}, "queries"),
        ({"q3": {"stages": []}}, "stages"),
        (changed(after=["nothing"]), "after"),
        (changed(name="scan"), "scan"),
        (changed(durations_s=[[0.1]]), "runs"),
        (changed(durations_s=[[], [], []]), "durations_s"),
        (changed(durations_s=[[-1.0], [1.0], [1.0]]), "durations_s"),
        ({"q3": {"stages": [{"name": "scan", "durations_s": [[0.0]]}]}}, "take time"),
    ],
)
def test_errors_of_a_profile_name_the_field(tmp_path: Path, queries: Any, named: str) -> None:
    path = written(tmp_path, queries)
    with pytest.raises(InvalidOption, match=named) as caught:
        read_profile(path)
    assert path.name in str(caught.value)


def test_a_missing_profile_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"none\.json"):
        read_profile(tmp_path / "none.json")
