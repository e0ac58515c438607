"""`benchmarks.peers`: ratios, the page that is made of them, who is left out; and one live row."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.faults_peers.observation import Observation
from benchmarks.peers import cases, document, turns
from benchmarks.peers.__main__ import main, show
from benchmarks.peers.broken_scheduler import told
from benchmarks.peers.cases import IN_USER, NAMES, QUICK, Case, Ran
from benchmarks.peers.lives import rotated
from benchmarks.peers.outcome import (
    DOCUMENT,
    RESULTS,
    CaseResult,
    PeerResult,
    Run,
    add,
    against,
    best,
    number,
    ratios,
    read,
)
from benchmarks.peers.outcome import spread as spread_of
from benchmarks.peers.peer import Library, Peer
from benchmarks.peers.systems import peers
from benchmarks.peers.user_process import Failed


class AtOnce(Library):
    """Each call runs when it is submitted."""

    name = "at once"
    futures_as_arguments = True

    def start(self, slots: int) -> None:
        """Nothing to start."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def result(self, future: Any) -> Any:
        return future

    def job(self, duration_s: float, tasks: int, done: Callable[[], None]) -> None:
        for _ in range(tasks):
            done()

    def stop(self) -> None:
        """Nothing to stop."""


def case_result(**peers: PeerResult) -> CaseResult:
    return CaseResult("no-ops", "ms", 1.0, 0.1, {name.replace("_", " "): result for name, result in peers.items()})


def run_of(*, quick: bool = False, date: str = "2026-01-01", **of_cases: CaseResult) -> Run:
    return Run(date, "abc", quick, 2, "3.11", 24, 0.5, {"sparrow": "0.1"}, {"parsl": "not installed"}, of_cases)


def test_ratios_are_of_values_of_the_same_turn() -> None:
    case = case_result(sparrow=PeerResult(values=[1.0, 4.0, 3.0]), loky=PeerResult(values=[2.0, 4.0, 1.0]))
    found = ratios(case, "loky")
    assert found is not None and (found.median, found.least, found.most) == (1.0, 0.5, 3.0)
    assert found.text() == "1 (0.5–3)"
    assert ratios(case, "dask") is None


def test_tools_are_compared_with_our_tool() -> None:
    case = case_result(sparrow_run=PeerResult(values=[3.0]), xargs=PeerResult(values=[1.5]))
    found = ratios(case, "xargs")
    assert found is not None and found.text() == "2"


def test_nobody_without_values_has_a_ratio_or_is_best() -> None:
    case = case_result(sparrow=PeerResult(values=[1.0]), ray=PeerResult(why="did not start"))
    assert ratios(case, "ray") is None and best(case.peers) == "sparrow"
    assert best({"ray": PeerResult(why="did not start")}) is None and spread_of([]) is None


def test_the_best_of_ours_stands_against_the_best_of_the_others() -> None:
    case = case_result(
        sparrow=PeerResult(values=[3.0]), prefetch=PeerResult(values=[2.0, 2.0, 9.0]), dask=PeerResult(values=[8.0]),
        ray=PeerResult(values=[4.0]), celery=PeerResult(why="did not start"),
    )  # fmt: skip
    assert against(case, {"dask", "ray", "celery"}, {"sparrow", "prefetch"}) == ("ray", "prefetch", 0.5)
    assert against(case, {"celery"}, {"sparrow"}) is None


@given(st.lists(st.floats(0.001, 1e6), min_size=1))
def test_a_median_lies_within_its_spread(values: list[float]) -> None:
    found = spread_of(values)
    assert found is not None and found.least <= found.median <= found.most


@pytest.mark.parametrize(("value", "text"), [(0.12345, "0.123"), (12.34, "12.3"), (1234.4, "1,234"), (0.0, "0")])
def test_numbers_have_three_figures(value: float, text: str) -> None:
    assert number(value) == text


def test_the_page_has_the_last_full_run_of_each_case_and_every_reason() -> None:
    early = run_of(sequential=case_result(sparrow=PeerResult(values=[9.0])))
    late = run_of(
        date="2026-02-02",
        sequential=case_result(
            sparrow=PeerResult(values=[1.0, 1.2], p95=[2.0, 2.0], cpu_ms=[0.5, 0.6]),
            loky=PeerResult(values=[2.0, 2.0], note="a <note>"),
            ray=PeerResult(why="did not | start"),
        ),
    )
    quick = run_of(quick=True, sequential=case_result(sparrow=PeerResult(values=[7.0])))
    made = document.tables([early, late, quick])
    assert "| sparrow | **1.1** (2) |" in made.replace("**1.1 (2)**", "**1.1** (2)")
    assert "| loky | 0.55 (0.5–0.6) |" in made
    assert "| ray | – |" in made and "did not ¦ start" in made and "a ‹note›" in made
    assert "Not measured yet: at-once, graph" in made
    assert "Left out: parsl: not installed." in made and "2026-02-02" in made and "2026-01-01" not in made


def test_peers_that_were_killed_one_after_the_other_stand_in_one_column() -> None:
    first = run_of(worker=case_result(sparrow=PeerResult(values=[1.0]), ray=PeerResult(why="did not start")))
    second = run_of(worker=case_result(ray=PeerResult(values=[3.0])))
    (_, case) = document.latest([first, second])["worker"]
    assert {name: result.values for name, result in case.peers.items()} == {"sparrow": [1.0], "ray": [3.0]}
    assert case.took_s == 2.0
    assert "0.333" not in document.tables([first, second])  # No ratio of two runs.


def test_a_page_without_markers_is_refused() -> None:
    page = f"before\n{document.BEGIN}\nold\n{document.END}\nafter\n"
    assert document.inserted(page, "new\n") == f"before\n{document.BEGIN}\n\nnew\n\n{document.END}\nafter\n"
    with pytest.raises(ValueError, match="has no lines"):
        document.inserted("before", "new")


def test_docs_peers_is_made_from_the_results_that_are_kept() -> None:
    page = DOCUMENT.read_text("utf-8")
    assert document.inserted(page, document.tables(read(RESULTS))) == page, (
        "run `python -m benchmarks.peers --document`"
    )


def test_results_are_kept_as_they_were(tmp_path: Path) -> None:
    run = run_of(sequential=case_result(sparrow=PeerResult(values=[1.0])))
    add(tmp_path / "results.jsonl", run)
    add(tmp_path / "results.jsonl", run)
    assert read(tmp_path / "results.jsonl") == [run, run]
    assert read(tmp_path / "none.jsonl") == []


def test_peers_are_ours_first_and_say_what_they_are() -> None:
    found = peers()
    assert list(found)[:4] == ["sparrow", "sparrow, prefetch", "sparrow, flow", "sparrow run"]
    assert {"process pool", "loky", "executorlib", "ray tasks", "ray actors", "dask", "parsl", "celery"} <= set(found)
    for peer in found.values():
        assert set(peer.lacks) <= set(NAMES)
    assert not found["sparrow"].why_not() and not found["process pool"].why_not()


def test_who_is_not_installed_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = peers()
    monkeypatch.setattr(type(found["dask"]), "packages", ("no-such-distribution",))
    monkeypatch.setattr(type(found["parallel"]), "programs", {"no-such-program": "apt-get install it"})
    asked = CliRunner().invoke(main, ["--peer", "dask", "--peer", "parallel", "--quick", "--json"])
    assert asked.exit_code == 0, asked.output
    run = json.loads(asked.stdout)
    assert run["left_out"]["dask"].startswith("no-such-distribution not installed: pip install")
    assert run["left_out"]["parallel"] == "no no-such-program on the PATH: apt-get install it"
    assert run["cases"] == {} and "dask is left out" in asked.stderr


@pytest.mark.parametrize("case", [case for case in IN_USER if not case.harms and not case.look], ids=lambda c: c.name)
def test_cases_have_the_answers_that_they_say(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.graphs.work.HOLD_S", 0.0)
    monkeypatch.setattr("benchmarks.peers.tasks.time", SimpleNamespace(sleep=lambda duration_s: None))
    monkeypatch.setattr(cases, "OPEN_LOOP_MS", 1.0)
    size = cases.Size(3, 5, 1, 0.01, 20, 8_000, 5)
    ran = case.run(AtOnce(), size)
    assert ran.answer == case.answer(size)
    assert ran.value is not None and ran.value > 0


def test_a_wrong_answer_and_a_failure_are_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    case = IN_USER[0]

    class Wrong:
        def __init__(self, ran: Ran | None) -> None:
            self.ran = ran

        def cpu_s(self) -> float:
            return 0.0

        def run(self, *_: object) -> Ran:
            if self.ran is None:
                raise Failed("did not end within 60 s")
            return self.ran

        def end(self) -> None:
            """Nothing to end."""

    users: dict[str, Any] = {
        "right": Wrong(Ran(1.0, case.answer(QUICK))), "wrong": Wrong(Ran(1.0, -1)), "late": Wrong(None),
    }  # fmt: skip
    monkeypatch.setattr(turns, "IDLE_S", 0.0)
    monkeypatch.setattr(turns, "round_trip_ms", lambda: 0.1)
    shape = turns.Shape(2, None, {name: AtOnce() for name in users}, dict(users))  # type: ignore[arg-type]
    found = turns.run_case(shape, case, QUICK, 2).peers
    assert (found["right"].values, found["right"].why) == ([1.0, 1.0], "")
    assert (found["wrong"].values, found["wrong"].why) == ([], "wrong answer -1")
    assert (found["late"].values, found["late"].why) == ([], "did not end within 60 s")
    assert list(shape.users) == ["right"]


def test_another_one_is_first_each_turn() -> None:
    assert [rotated(["a", "b", "c"], turn) for turn in range(2)] == [["a", "b", "c"], ["b", "c", "a"]]
    assert rotated([], 1) == []


def test_a_killed_scheduler_has_a_value_only_if_all_results_came() -> None:
    def seen(**differs: Any) -> Observation:
        facts: dict[str, Any] = {
            "tasks": 60, "results": 60, "errors": {}, "raised": None, "ending": "ended", "first_error_s": None,
            "last_s": 2.5, "starts": 60, "started_again": 0,
        }  # fmt: skip
        return Observation(**facts | differs)

    assert told(seen()).values == [2.5]
    assert told(seen(results=12)).why == "12 of 60 results, errors after 2.5 s"
    assert told(seen(results=12, ending="waits", last_s=20.0)).why == "12 of 60 results, still waits after 20.0 s"


def test_what_was_measured_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(run_of(sequential=case_result(sparrow=PeerResult(values=[1.0]), ray=PeerResult(why="[no] way"))))
    said = capsys.readouterr().out
    assert "[no] way" in said and "parsl is left out: not installed" in said


@pytest.mark.rest
def test_a_live_row_of_sparrow_and_the_process_pool(tmp_path: Path) -> None:
    kept = tmp_path / "results.jsonl"
    flags = ["--quick", "--only", "sequential", "--peer", "sparrow", "--peer", "process pool", "--results", str(kept)]
    subprocess.run([sys.executable, "-m", "benchmarks.peers", *flags], check=True, capture_output=True, timeout=100)
    (run,) = read(kept)
    results = run.cases["sequential"].peers
    assert set(results) == {"sparrow", "process pool"}
    assert all(len(one.values) == len(one.cpu_ms) == 1 and not one.why for one in results.values())
    assert ratios(run.cases["sequential"], "process pool") is not None


def test_every_peer_of_the_page_is_a_peer() -> None:
    known: set[str] = set(peers())
    assert all(isinstance(peer, Peer) for peer in peers().values())
    assert {name for run in read(RESULTS) for case in run.cases.values() for name in case.peers} <= known
