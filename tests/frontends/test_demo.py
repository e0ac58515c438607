"""The demo: its answer is right, its ideal is computed correctly, and it runs on a cluster."""

import json
import os
import pickle
import subprocess
import sys
import tokenize
from collections import Counter
from concurrent.futures import Future
from keyword import iskeyword
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from frontends.demo import identifiers
from frontends.demo.__main__ import DemoError, ideal_response_s, result_json, run_job, stage_times, times_table
from frontends.demo.identifiers import Answer, GroupCounts
from sparrow_py.job import JobReport, TaskReport, TaskStatus


def plain_count(paths: list[Path]) -> Counter[str]:
    """The job's counts, computed in one loop."""
    counts: Counter[str] = Counter()
    for path in paths:
        with tokenize.open(path) as file:
            names = [t.string for t in tokenize.generate_tokens(file.readline) if t.type == tokenize.NAME]
        counts.update(name for name in names if not iskeyword(name))
    return counts


def in_process(paths: list[Path], groups: int, reducers: int, top: int) -> Answer:
    """The answer of the three stages without a cluster; results are pickled between them as on a cluster."""
    counted = [
        pickle.loads(pickle.dumps(identifiers.count(group, reducers)))
        for group in identifiers.balanced_groups(paths, groups)
    ]
    merged = [identifiers.merge([counts.partitions[r] for counts in counted]) for r in range(reducers)]
    return identifiers.order(pickle.loads(pickle.dumps(merged)), top)


def standard_library_sample() -> list[Path]:
    root = identifiers.standard_library()
    return [
        root / name for name in ("ast.py", "bisect.py", "heapq.py", "json/decoder.py", "json/encoder.py", "queue.py")
    ]


@pytest.mark.parametrize(("groups", "reducers"), [(1, 1), (3, 8), (100, 2)])
def test_three_stages_find_what_one_loop_finds(groups: int, reducers: int) -> None:
    sample = standard_library_sample()
    expected = plain_count(sample)
    answer = in_process(sample, groups, reducers, top=20)
    assert answer.total == expected.total()
    assert answer.distinct == len(expected)
    assert answer.top == sorted(expected.items(), key=lambda item: (-item[1], item[0]))[:20]


def test_source_files_leave_out_tests_and_installed_packages(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "pkg/c.py", "test/t.py", "pkg/tests/t.py", "site-packages/x/y.py", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    (tmp_path / "directory.py").mkdir()
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nowhere")
    assert identifiers.source_files(tmp_path) == [tmp_path / name for name in ("a.py", "b.py", "pkg/c.py")]


def test_source_files_under_a_directory_that_is_itself_called_tests(tmp_path: Path) -> None:
    root = tmp_path / "tests"
    root.mkdir()
    (root / "a.py").touch()
    assert identifiers.source_files(root) == [root / "a.py"]


def test_the_standard_library_makes_more_than_a_hundred_tasks() -> None:
    files = identifiers.source_files(identifiers.standard_library())
    groups = identifiers.balanced_groups(files, 128)
    assert len(groups) == 128
    assert sorted(path for group in groups for path in group) == sorted(map(str, files))


@given(sizes=st.lists(st.integers(0, 1000), max_size=40), groups_max=st.integers(1, 12))
def test_groups_are_balanced_and_lose_no_file(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], groups_max: int
) -> None:
    directory = tmp_path_factory.mktemp("sizes")
    files = [directory / f"{index}.py" for index in range(len(sizes))]
    for path, size in zip(files, sizes, strict=True):
        with path.open("wb") as file:
            file.truncate(size)
    groups = identifiers.balanced_groups(files, groups_max)
    assert len(groups) == min(groups_max, len(files))
    assert sorted(path for group in groups for path in group) == sorted(map(str, files))
    assert all(groups)
    weights = [sum(Path(path).stat().st_size for path in group) for group in groups]
    assert weights == sorted(weights, reverse=True)
    assert max(weights, default=0) - min(weights, default=0) <= max(sizes, default=0)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"", []),
        (b"import os\nx = os.path\n", ["os", "x", "os", "path"]),
        ("größe = naïve\n".encode(), ["größe", "naïve"]),
        (b"# -*- coding: latin-1 -*-\ngr\xf6\xdfe = 1\n", ["größe"]),
        (b"# -*- coding: no-such-codec -*-\nx = 1\n", []),
        (b"x = 1\nif True:\n        y\n    z\n", ["x"]),
        (b"\xff\xfe\x00", []),
    ],
    ids=["empty", "plain", "utf-8", "latin-1", "unknown codec", "bad indentation", "binary"],
)
def test_files_that_are_no_valid_python_are_read_as_far_as_they_go(
    tmp_path: Path, source: bytes, expected: list[str]
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(source)
    found = list(identifiers.identifiers_in(str(path)))
    assert found[: len(expected)] == expected
    assert "if" not in found
    counts = identifiers.count([str(path)], 4)
    assert counts.total == len(found)


def test_the_split_is_the_same_in_every_process() -> None:
    names = ["self", "größe", "__init__", "x"]
    program = f"from frontends.demo.identifiers import reducer_of; print([reducer_of(n, 8) for n in {names!r}])"
    here = str([identifiers.reducer_of(name, 8) for name in names])
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        there = subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
        )
        assert there.stdout.strip() == here


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 10)), st.integers(1, 9))
def test_every_identifier_has_one_reducer(counts: dict[str, int], reducers: int) -> None:
    assert all(0 <= identifiers.reducer_of(name, reducers) < reducers for name in counts)


def test_counts_hold_partition_and_total(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("a = b = a + c\n")
    counts = identifiers.count([str(path)], 3)
    assert isinstance(counts, GroupCounts)
    assert counts.total == 4
    assert identifiers.merge(counts.partitions) == {"a": 2, "b": 1, "c": 1}
    for reducer, partition in enumerate(counts.partitions):
        assert all(identifiers.reducer_of(name, 3) == reducer for name in partition)


def test_order_breaks_ties_by_the_alphabet() -> None:
    assert identifiers.order([{"b": 2, "z": 9}, {"a": 2, "c": 1}], 3) == Answer(14, 4, [("z", 9), ("a", 2), ("b", 2)])
    assert identifiers.order([], 3) == Answer(0, 0, [])


# ---- times -----------------------------------------------------------------------------------


def report(*services_s: float, status: TaskStatus = TaskStatus.FINISHED) -> JobReport:
    """Tasks submitted at 100 s that ran one after the other in one slot."""
    tasks, now_s = [], 100.0
    for task, service_s in enumerate(services_s):
        started_s, now_s = now_s, now_s + service_s
        tasks.append(TaskReport(task, status, 1, "node", "boom", 100.0, 100.0, started_s, now_s, service_s))
    return JobReport("job", tasks)


@pytest.mark.parametrize(
    ("services_s", "slots", "expected"),
    [
        ([], 3, 0.0),
        ([2.0], 3, 2.0),
        ([1.0, 2.0, 3.0], 1, 6.0),
        ([1.0, 2.0, 3.0], 3, 3.0),
        ([1.0, 1.0, 4.0], 2, 5.0),  # in submission order, even where another order ends sooner
        ([3.0, 1.0, 1.0, 1.0], 2, 3.0),
    ],
)
def test_ideal_is_the_greedy_schedule_in_submission_order(services_s: list[float], slots: int, expected: float) -> None:
    assert ideal_response_s(services_s, slots) == expected


@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.integers(1, 8))
def test_ideal_lies_between_the_bounds_of_any_list_schedule(services_s: list[float], slots: int) -> None:
    ideal = ideal_response_s(services_s, slots)
    shared = sum(services_s) / slots
    longest = max(services_s)
    assert max(shared, longest) - 1e-9 <= ideal <= shared + longest * (1 - 1 / slots) + 1e-9


def test_stage_times_are_those_of_the_report() -> None:
    times = stage_times("count", report(1.0, 2.0), slots=2)
    assert times.waits_s == [0.0, 1.0]
    assert times.services_s == [1.0, 2.0]
    assert times.responses_s == [1.0, 3.0]
    assert (times.response_s, times.ideal_s, times.overhead) == (3.0, 2.0, 1.5)


@pytest.mark.parametrize("status", [TaskStatus.FAILED, TaskStatus.LOST, TaskStatus.CANCELLED])
def test_a_task_that_did_not_finish_is_an_error_that_names_it(status: TaskStatus) -> None:
    with pytest.raises(DemoError, match=f"stage count: task 0 ended {status}: boom"):
        stage_times("count", report(1.0, status=status), slots=1)


# ---- the job, on a client that runs it here ---------------------------------------------------


class HereJob:
    def __init__(self, results: list[Any]) -> None:
        self._results = results

    def __iter__(self) -> Any:
        for result in self._results:
            future: Future[Any] = Future()
            future.set_result(result)
            yield future

    def results(self) -> list[Any]:
        return self._results

    def report(self) -> JobReport:
        return report(*[0.001] * len(self._results))


class HereClient:
    """`Client.submit_calls` in this process. `spoil` may change the results of a stage."""

    def __init__(self, spoil: Any = lambda name, results: results) -> None:
        self.spoil = spoil

    def submit_calls(self, function: Any, calls: Any, *, name: str) -> HereJob:
        return HereJob(self.spoil(name, [function(*pickle.loads(pickle.dumps(call))) for call in calls]))


def run_here(client: Any, shown: list[tuple[str, int, int]] | None = None) -> Any:
    groups = identifiers.balanced_groups(standard_library_sample(), 4)
    return run_job(client, groups, 4, lambda *step: None if shown is None else shown.append(step))


def test_run_job_answers_and_shows_every_task() -> None:
    shown: list[tuple[str, int, int]] = []
    run = run_here(HereClient(), shown)
    expected = plain_count(standard_library_sample())
    assert (run.answer.total, run.answer.distinct) == (expected.total(), len(expected))
    assert shown == [
        *(("count", ended, 4) for ended in range(5)),
        *(("merge", ended, 8) for ended in range(9)),
        *(("order", ended, 1) for ended in range(2)),
    ]
    assert [len(times.services_s) for times in (*run.stages, run.total)] == [4, 8, 1, 13]
    assert run.total.ideal_s == pytest.approx(sum(times.ideal_s for times in run.stages))


def test_run_job_notices_lost_counts_and_lost_results() -> None:
    def lose_a_count(name: str, results: list[Any]) -> list[Any]:
        return [{}, *results[1:]] if name == "merge" else results

    with pytest.raises(DemoError, match="the answer counts"):
        run_here(HereClient(lose_a_count))
    with pytest.raises(DemoError, match="stage count: 4 tasks gave 3 results"):
        run_here(HereClient(lambda name, results: results[1:]))


def test_the_results_for_programs_and_for_people() -> None:
    run = run_here(HereClient())
    result = json.loads(json.dumps(result_json([run, run, run], {"cores": 2})))
    assert set(result) == {"name", "value", "unit", "details"}
    assert result["value"] == run.total.overhead
    assert len(result["details"]["repetitions"]) == 3
    assert [stage["tasks"] for stage in result["details"]["repetitions"][0]["stages"]] == [4, 8, 1]

    console = Console(width=80, record=True, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(times_table(run))
    console.file.close()
    text = console.export_text()
    assert "…" not in text
    assert [line.split()[0] for line in text.splitlines() if "×" in line] == ["count", "merge", "order", "job"]


# ---- the command, on a real cluster -----------------------------------------------------------


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "frontends.demo", *arguments]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=100)


@pytest.mark.rest
def test_the_demo_runs_on_processes(tmp_path: Path) -> None:
    sample = standard_library_sample()
    for path in sample:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    ended = demo("--json", "--repeat", "2", "--node-monitors", "2", "--slots", "1", "--directory", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    expected = plain_count(sample)
    answer = result["details"]["answer"]
    assert (answer["total"], answer["distinct"]) == (expected.total(), len(expected))
    overheads = [repetition["overhead"] for repetition in result["details"]["repetitions"]]
    assert result["value"] == pytest.approx(sum(overheads) / 2)


def test_the_demo_fails_with_one_line(tmp_path: Path) -> None:
    ended = demo("--directory", str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr == f"error: {tmp_path}: no Python files there\n"
    assert ended.stdout == ""
