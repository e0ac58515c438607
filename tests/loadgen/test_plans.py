"""From the command line to points: every combination, with the settings that reproduce it; the simulator's results."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loadgen.plans import Asked, plans
from loadgen.policies import PEERS, STATED, stated
from loadgen.presets import PRESETS
from loadgen.recorded import REPLAYED, SPUN
from loadgen.report_content import POLICIES
from loadgen.simulated import simulated
from loadgen.synthetic import Synthetic
from loadgen.targets import Shape, in_order, node_processes
from loadgen.tpch import PAPER_QUERIES, TpchLike
from scheduler.altruistic.settings import SCHEDULERS
from sparrow_py.errors import InvalidOption
from sparrow_py.job import FLOW_FROM_S


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of queries with tasks of 20 ms."""
    path = tmp_path / "tpch.json"
    stage = {"name": "scan", "constrained": True, "durations_s": [[0.01, 0.03]]}
    path.write_text(
        json.dumps({"source": {"made": "up"}, "queries": {name: {"stages": [stage]} for name in PAPER_QUERIES}})
    )
    monkeypatch.setattr("loadgen.tpch.PROFILE", path)


@pytest.mark.usefixtures("profile")
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "queries"])
def test_each_preset_makes_points_for_the_cluster_of_the_paper(preset: str) -> None:
    made = plans(Asked(preset=preset, seconds=2.0))
    of = PRESETS[preset]
    ways = len(of.placements) * len(of.policies)
    assert len(made) == len(of.loads) * len(of.probe_ratios) * len(of.durations_ms) * ways
    assert len({plan.label for plan in made}) == len(made)
    assert all(plan.shape is not None and (plan.shape.nodes, plan.shape.slots) == (of.nodes, of.slots) for plan in made)
    assert all(plan.settings["workload"] == preset for plan in made)


def test_every_combination_of_the_settings_is_a_point() -> None:
    asked = Asked(preset="fig9", loads=(0.2, 0.4), probe_ratios=(1.0, 3.0), placements=("sparrow", "random"), jobs=5)
    found = {(plan.load, plan.probe_ratio, plan.shape.placement if plan.shape else "") for plan in plans(asked)}
    assert found == {
        (load, d, placement) for load in (0.2, 0.4) for d in (1.0, 3.0) for placement in ("sparrow", "random")
    }


def test_several_profiles_are_several_points_of_sparrow_and_one_of_the_others() -> None:
    asked = Asked(preset="fig9", loads=(0.3, 0.5), probe_ratios=(2.0,), placements=("sparrow", "random"), jobs=5)
    made = plans(replace(asked, profiles=("paper", "default")))
    found = [(plan.load, plan.shape.placement, plan.shape.profile) for plan in made if plan.shape is not None]
    ways = [("sparrow", "paper"), ("sparrow", "default"), ("random", "paper")]
    assert found == [(load, *way) for load in (0.3, 0.5) for way in ways]
    assert [plan.label for plan in made][:3] == [
        "sparrow, paper, load 0.3",
        "sparrow, default, load 0.3",
        "random, load 0.3",
    ]
    assert [plan.shape.profile for plan in plans(asked) if plan.shape is not None] == ["default"] * 4
    with pytest.raises(InvalidOption, match="profile: 'papers' is not valid; allowed: paper, default"):
        replace(asked, profiles=("papers",))


def test_mixed_load_is_run_by_sampling_alone_and_with_long_jobs_placed() -> None:
    sampled, placed = plans(Asked(preset="mixed", seconds=30.0))
    assert sampled.shape is not None and placed.shape == replace(sampled.shape, leads="flow")
    assert (sampled.policy, placed.policy, sampled.shape.leads) == ("sparrow", "auto", "")
    one, other = (list(plan.workload.generate(1, 20, 10)) for plan in (sampled, placed))
    assert one == other, "both get the same jobs"
    of_user = {user: {job.mean_s for job in one if job.user == user} for user in ("short", "long")}
    assert of_user["short"] == {0.1} and min(of_user["long"]) >= FLOW_FROM_S


def test_jobs_may_state_a_policy_and_then_the_cluster_has_its_scheduler() -> None:
    asked = Asked(preset="fig9", loads=(0.3,), probe_ratios=(2.0,), policies=("sparrow", "flow", "auto"), jobs=5)
    made = plans(asked)
    assert [plan.policy for plan in made] == ["sparrow", "flow", "auto"]
    assert [bool(plan.shape.leads) for plan in made if plan.shape is not None] == [False, True, True]
    assert [plan.label for plan in made] == ["sparrow", "flow", "auto"]
    for preset, policies in (("fig9", ("best",)), ("fig9", ("",)), ("queries", ("flow",))):
        with pytest.raises(InvalidOption, match=r"^policy: "):
            Asked(preset=preset, policies=policies)
    with pytest.raises(InvalidOption, match="any but central beside a scheduler of policy flow"):
        Shape(placement="central", schedulers=1, leads="flow")


def test_the_altruistic_plane_and_drf_in_it_get_the_same_jobs_on_clusters_that_differ_in_this_alone() -> None:
    drf, altruistic = plans(Asked(preset="dags", seconds=5.0))
    assert drf.shape is not None and altruistic.shape == replace(drf.shape, altruistic_policy="altruistic")
    assert (drf.shape.leads, drf.shape.altruistic_policy, drf.shape.schedulers) == ("altruistic", "drf", 1)
    assert drf.jobs(20, 5) == altruistic.jobs(20, 5)
    (other,) = plans(Asked(preset="fig12", policies=("srtf/order=tetris",), seconds=5.0))
    assert other.shape is not None
    assert (other.shape.altruistic_policy, other.shape.schedulers) == ("srtf/order=tetris", 1)
    with pytest.raises(InvalidOption, match="schedulers: 2 is not valid; allowed: 1 with policy altruistic"):
        Shape(leads="altruistic", schedulers=2)
    with pytest.raises(InvalidOption, match="altruistic_policy: 'drf' is not valid"):
        Shape(altruistic_policy="drf")


def test_schedulers_of_the_altruistic_plane_are_those_that_it_has() -> None:
    """This package imports nothing of the scheduler's."""
    assert ("altruistic", *PEERS) == tuple(SCHEDULERS)
    assert {*STATED, *PEERS} == set(POLICIES), "reports name them all"
    assert {policy: stated(policy) for policy in ("", "auto", "drf", "altruistic/lend=profile")} == {
        "": "", "auto": "auto", "drf": "altruistic", "altruistic/lend=profile": "altruistic",
    }  # fmt: skip


def test_of_central_schedulers_there_is_one() -> None:
    made = plans(Asked(preset="fig13", durations_ms=(100.0,), schedulers=7, seconds=2.0))
    shapes = [plan.shape for plan in made if plan.shape is not None]
    assert [(shape.placement, shape.schedulers) for shape in shapes] == [("sparrow", 7), ("central", 1)]
    one, other = (list(plan.workload.generate(1, 100, 4)) for plan in made)
    assert one == other, "both get the same jobs"
    with pytest.raises(InvalidOption, match=r"schedulers.*1 with placement central"):
        Shape(placement="central", schedulers=2)


def test_a_cluster_that_runs_already_has_one_placement_and_one_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Running:
        nodes, slots, profile = tuple(f"n{number}" for number in range(25)), 4, "paper"

        def __init__(self, addresses: tuple[str, ...]) -> None:
            assert addresses == ("127.0.0.1:1",)

        def __enter__(self) -> "Running":
            return self

        def __exit__(self, *_: object) -> None:
            """It goes on."""

    monkeypatch.setattr("loadgen.plans.ExistingTarget", Running)
    asked = Asked(preset="fig13", durations_ms=(100.0,), scheduler=("127.0.0.1:1",), seconds=2.0)
    assert [(plan.settings["placement"], plan.settings["profile"]) for plan in plans(asked)] == [("sparrow", "paper")]
    assert len(plans(replace(asked, profiles=("paper",)))) == 1
    with pytest.raises(InvalidOption, match=r"profile: 'default' .* that of the running cluster, 'paper'"):
        plans(replace(asked, profiles=("default",)))
    with pytest.raises(InvalidOption, match="policy: 'drf' is not valid; allowed: with --scheduler what jobs"):
        plans(Asked(preset="dags", scheduler=("127.0.0.1:1",), seconds=2.0))
    with pytest.raises(InvalidOption, match="a running cluster has one profile"):
        replace(asked, profiles=("default", "paper"))


@pytest.mark.usefixtures("profile")
def test_short_queries_are_stretched_so_that_they_can_be_placed() -> None:
    (plan,) = plans(Asked(preset="table3", jobs=10))
    assert isinstance(plan.workload, TpchLike)
    assert plan.workload.stretch == pytest.approx(100 / 20)
    (plan,) = plans(Asked(preset="table3", jobs=10, durations_ms=(40.0,)))
    assert isinstance(plan.workload, TpchLike)
    assert plan.workload.stretch == pytest.approx(2.0)


@pytest.mark.usefixtures("profile")
def test_recorded_queries_say_how_they_are_replayed_and_lie_striped() -> None:
    for app, execution in (("sleep", REPLAYED), ("spin", SPUN)):
        (plan,) = plans(Asked(preset="table3", jobs=10, app=app))
        assert (plan.settings["execution"], plan.settings["data"]) == (execution, "striped")


@pytest.mark.usefixtures("profile")
@pytest.mark.parametrize(
    ("preset", "nodes", "named"),
    [("fig9", 2, "at least 10 slots"), ("fig12", 2, "at least 10 slots"), ("fig10", 2, "at least 3 nodes")],
)
def test_a_cluster_that_is_too_small_is_refused(preset: str, nodes: int, named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        plans(Asked(preset=preset, nodes=nodes, jobs=5))


def test_the_third_user_s_admission_limit_is_raised() -> None:
    over, control = plans(Asked(preset="table4", jobs=30))
    for plan in (over, control):
        assert plan.shape is not None
        assert plan.shape.unplaced_tasks_max is not None
        assert plan.shape.unplaced_tasks_max > 1_000_000
    shares = [
        {user: round(about["load"], 6) for user, about in plan.settings["users"].items()} for plan in (over, control)
    ]
    assert shares == [
        {"user0": 0.25, "user1": 0.25, "user2": 0.5},
        {"user0": 0.25, "user1": 0.25, "user2": 0.25},
    ]


def test_a_trace_is_cut_and_stretched(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("".join(f"{second} 2 1 1 1\n" for second in range(10)))
    (whole,) = plans(Asked(file=str(path)))
    assert whole.load == pytest.approx(20 / (9 * 400), abs=1e-6)
    (stretched,) = plans(Asked(file=str(path), loads=(0.5,), seconds=0.01))
    assert stretched.load == pytest.approx(0.5)
    assert len(stretched.jobs(100, 4)) == 1
    (cut,) = plans(Asked(file=str(path), jobs=4))
    assert len(cut.jobs(100, 4)) == 4


def test_the_simulator_gets_the_same_jobs() -> None:
    asked = Asked(preset="fig9", loads=(0.3,), probe_ratios=(2.0,), jobs=20, nodes=5, schedulers=2, seed=4)
    (plan,) = plans(replace(asked, profiles=("paper",)))
    assert isinstance(plan.workload, Synthetic)
    found = simulated([plan])
    (point,) = found.points
    assert (point.load, point.probe_ratio, point.placement, point.profile) == (0.3, 2.0, "sparrow", "paper")
    assert point.p5 is not None
    assert point.p95 is not None
    assert 100 <= point.p5 <= point.p50 <= point.p95
    for part in ("--nodes 5", "--profile paper", "--jobs 20", "--seed 4", "--service constant", "--mean-ms 100"):
        assert part in found.command


def test_nodes_are_in_the_order_that_people_expect() -> None:
    assert in_order(["node-10", "node-9", "node-1/10", "node-1/2"]) == ("node-1/2", "node-1/10", "node-9", "node-10")
    assert 100 % node_processes(100) == 0
    assert node_processes(1) == 1
