"""Jobs of several stages: simulated as live daemons run them, and the command for queries, figures 10 and 11."""

import json
from pathlib import Path

import pytest

from loadgen import report_plots
from loadgen.generators import replay_in_processes
from loadgen.recorded import SIMULATED, read_run
from loadgen.replay import Plan
from loadgen.targets import LocalTarget, Shape
from loadgen.tpch import TpchLike, read_profile
from loadgen.traces import Trace, parse_lines
from simulator.__main__ import main
from simulator.cluster import Cluster
from simulator.commands.queries import POLICIES
from simulator.simulate import simulate
from tests.support.suites import rest_after

BLOCKER = '{"arrival_s": 0, "durations_s": [1.2]}'
"""All others wait behind it when it ends: from then on the order follows from what the daemons decide alone. There is
one user, as turns of users go by how long tasks took."""
DIAMOND = (
    '{{"arrival_s": {at_s}, "stages": [{{"name": "scan", "durations_s": [0.02, 0.03, 0.02]}},'
    ' {{"name": "left", "after": ["scan"], "durations_s": [0.02, 0.02]}},'
    ' {{"name": "right", "after": ["scan"], "durations_s": [0.03]}},'
    ' {{"name": "join", "after": ["left", "right"], "durations_s": [0.02]}}]}}'
)
TRACE = Trace(
    "t",
    tuple(
        parse_lines(
            "t",
            [
                BLOCKER,
                DIAMOND.format(at_s=0.05),
                '{"arrival_s": 0.1, "durations_s": [0.02, 0.02]}',
                DIAMOND.format(at_s=0.15),
                DIAMOND.format(at_s=0.2),
            ],
        )
    ),
)
Start = tuple[float, int, int]


def in_order(starts: list[Start]) -> list[tuple[int, int]]:
    """The tasks, (job, task), in the order in which they started."""
    return [(job, task) for _, job, task in sorted(starts)]


@pytest.mark.parametrize("placement", rest_after(1, "sparrow", "random", "central"))
def test_stages_start_in_the_order_in_which_live_daemons_start_them(placement: str, tmp_path: Path) -> None:
    with LocalTarget(Shape(nodes=1, slots=1, schedulers=1, placement=placement), tmp_path) as target:
        plan = Plan("run", "sleep", 2.0, target.nodes, 60.0)
        jobs = list(TRACE.generate(1, 1, 1))
        replayed = replay_in_processes(target.addresses, jobs, plan, 1, lambda: None, lambda _: None)
    live = [
        (started_s, record.number, task)
        for record in replayed.records
        for task, started_s in enumerate(record.started_s)
    ]
    result = simulate(Cluster(nodes=1), TRACE, POLICIES[placement])
    simulated = [
        (started_s, record.job.number, task)
        for record in result.records
        for task, started_s in enumerate(record.started_s)
    ]
    assert len(live) == 1 + 3 * 7 + 2
    assert in_order(live) == in_order(simulated)


# ---- the command -----------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as caught:
        main(["queries", *arguments])
    captured = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, captured.out, captured.err


@pytest.mark.rest
def test_queries_are_simulated_under_each_placement_and_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, printed, _ = run(
        capsys, "--nodes", "12", "--slots", "4", "--schedulers", "2", "--jobs", "40", "--load", "0.5",
        "--placement", ",".join(POLICIES), "--json", "--report", str(out),
    )  # fmt: skip
    assert code == 0
    points = [json.loads(line) for line in printed.splitlines()]
    assert [point["settings"]["placement"] for point in points] == list(POLICIES)
    assert [point["settings"]["schedulers"] for point in points] == [2, 2, 2, 2, 1]
    for point in points:
        assert point["settings"]["execution"] == SIMULATED
        assert point["settings"]["stretch"] == 1.0
        assert point["value"] > 1
        assert point["figures"]["jobs_unfinished"] == 0
    recorded = read_run(out)
    jobs = recorded.jobs.to_pylist()
    assert len(jobs) == 40 * len(POLICIES)
    assert all(row["response_s"] >= row["ideal_s"] - 1e-9 for row in jobs)
    workload = TpchLike(profile=read_profile().only(["q3", "q4", "q6", "q12"]), load=0.5, jobs=40)
    wanted = list(workload.generate(1, 12, 4))
    of_sparrow = recorded.of(0).tasks.to_pylist()
    assert [row["service_s"] for row in of_sparrow] == [seconds for job in wanted for seconds in job.durations_s]
    preferred = [nodes for job in wanted for nodes in job.preferred]
    assert all(not nodes or int(row["node"][1:]) in nodes for row, nodes in zip(of_sparrow, preferred, strict=True))
    page = (out / "report.html").read_text()
    assert "Recorded durations, on simulated daemons, not stretched." in page


def test_equal_seeds_print_equal_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--nodes", "5", "--jobs", "10", "--stretch", "1,10", "--placement", "sparrow", "--json")
    once, again, other = (run(capsys, *arguments, "--seed", seed)[1] for seed in ("3", "3", "4"))
    assert once == again != other
    assert [json.loads(line)["settings"]["stretch"] for line in once.splitlines()] == [1.0, 10.0]


def test_both_profiles_of_sparrow_stand_beside_random_placement_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for draw in ("ranges", "cdf", "over_time", "lines"):  # The page is asked for its words.
        monkeypatch.setattr(report_plots, draw, lambda *_, **__: "<svg></svg>")
    out = tmp_path / "out"
    code, printed, _ = run(
        capsys, "--nodes", "5", "--jobs", "8", "--profile", "paper,default", "--json", "--report", str(out)
    )  # fmt: skip
    assert code == 0
    points = [json.loads(line)["settings"] for line in printed.splitlines()]
    ways = [(point["placement"], point["profile"]) for point in points]
    assert ways == [("sparrow", "paper"), ("sparrow", "default"), ("random", "paper")]
    assert "profiles paper and default" in read_run(out).header.title
    page = (out / "report.html").read_text()
    assert "Sparrow (paper)" in page and "Sparrow (default)" in page


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--placement", "magic"), "--placement"),
        (("--load", "0.5,much"), "--load"),
        (("--load", "1"), "--load"),
        (("--stretch", "0"), "--stretch"),
        (("--jobs", "0"), "--jobs"),
        (("--jobs", "2000000"), "--jobs"),
        (("--queries", "q99"), "--queries"),
        (("--nodes", "0"), "--nodes"),
        (("--recorded", "none.json"), "--recorded"),
        (("--profile", "none"), "--profile"),
        (("--profile", "default,paper", "--push-to-idle"), "--push-to-idle: True is not valid; allowed: False"),
        (("--nodes", "2"), "--nodes: 2 is not valid; allowed: at least 3, one for each replica"),
        (("--nodes", "3"), "--nodes: '3 × 8 = 24 slots' is not valid; allowed: at least 30 slots"),
    ],
)
def test_errors_name_the_flag(capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], named: str) -> None:
    code, _, error = run(capsys, *arguments)
    assert code == 2
    assert named in error
    assert len(error.splitlines()) == 1


def test_help_and_document_say_how_long_queries_take(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0 and "4000 take about 25 s for each placement" in " ".join(out.split())
    assert "4,000 queries, the default of `--jobs`, takes about 25 seconds" in Path("docs/simulator.md").read_text(
        "utf-8"
    )
