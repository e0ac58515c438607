"""Traces: both formats, the round trip, stretching to a load, and errors that name line and field."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen import traces
from loadgen.jobs import WorkloadJob, WorkloadStage
from loadgen.synthetic import Synthetic
from loadgen.traces import DEFAULT_USER, Trace, parse_lines, read_trace
from sparrow_py.errors import InvalidOption


def as_json(job: WorkloadJob) -> str:
    """The job as a line of our own format, written by hand."""
    row = {"arrival_s": job.arrival_s, "durations_s": list(job.durations_s), "user": job.user}
    return json.dumps(row | {"where": list(job.where), "preferred": [list(nodes) for nodes in job.preferred]})


STAGED = """{"arrival_s": 1, "label": "q3", "user": "ann", "priority": -3, "stages": [
 {"name": "scan", "durations_s": [0.1, 0.2], "preferred": [[1, 2], [3]]},
 {"name": "side", "durations_s": [0.5]},
 {"name": "join", "after": ["scan", "side"], "durations_s": [0.3]}]}""".replace("\n", "")


def test_a_job_of_several_stages() -> None:
    (job,) = parse_lines("t", [STAGED])
    assert (job.label, job.user, list(job.durations_s)) == ("q3", "ann", [0.1, 0.2, 0.5, 0.3])
    assert job.priority == -3
    assert job.preferred == ((1, 2), (3,), (), ())
    assert job.stages == (
        WorkloadStage("scan", (), 2), WorkloadStage("side", (), 1), WorkloadStage("join", ("scan", "side"), 1),
    )  # fmt: skip
    assert [tasks for _, tasks in job.ranges()] == [range(2), range(2, 3), range(3, 4)]


def test_a_written_trace_is_read_back() -> None:
    workload = Synthetic(tasks=4, jobs=30, users=("ann", "bob"), constrained=0.5, zones=3)
    jobs = [*workload.generate(1, 10, 1), *parse_lines("t", [STAGED.replace('"arrival_s": 1', '"arrival_s": 1000')])]
    lines = [traces.as_json(job).decode() for job in jobs]
    again = parse_lines("t", lines)
    assert [traces.as_json(job).decode() for job in again] == lines
    assert again[:-1] == jobs[:-1]
    assert again[-1].stages == jobs[-1].stages and again[-1].priority == -3


def as_numbers(job: WorkloadJob) -> str:
    """The job as a line of numbers."""
    durations_s = list(job.durations_s)
    return " ".join(map(str, [job.arrival_s, len(durations_s), sum(durations_s) / len(durations_s), *durations_s]))


def test_a_hand_written_trace_is_read() -> None:
    workload = Synthetic(tasks=4, jobs=30, users=("ann", "bob"), constrained=0.5, zones=3)
    jobs = list(workload.generate(1, 10, 1))
    assert parse_lines("t", map(as_json, jobs)) == jobs


arrivals = st.lists(st.floats(0, 1e9), min_size=1, max_size=8).map(sorted)


@given(arrivals, st.data())
def test_numbers_are_read_as_they_are_written(arrivals_s: list[float], data: st.DataObject) -> None:
    durations = st.lists(st.floats(0, 1e6), min_size=1, max_size=5)
    all_s = [data.draw(durations) for _ in arrivals_s]
    lines = [
        " ".join(map(repr, [arrival_s, len(durations_s), 1.5, *durations_s]))
        for arrival_s, durations_s in zip(arrivals_s, all_s, strict=True)
    ]
    jobs = parse_lines("t", lines)
    assert [job.arrival_s for job in jobs] == arrivals_s
    assert [list(job.durations_s) for job in jobs] == all_s
    assert [job.number for job in jobs] == list(range(len(jobs)))
    assert {(job.user, job.where, job.preferred, job.mean_s) for job in jobs} == {(DEFAULT_USER, (), (), 1.5)}


def test_both_formats_give_the_same_jobs() -> None:
    jobs = list(Synthetic(tasks=3, jobs=5).generate(1, 10, 1))
    of_json, of_numbers = parse_lines("t", map(as_json, jobs)), parse_lines("t", map(as_numbers, jobs))
    for one, other in zip(of_json, of_numbers, strict=True):
        assert (one.arrival_s, one.durations_s) == (other.arrival_s, other.durations_s)


def test_formats_mix_and_comments_and_empty_lines_are_skipped() -> None:
    lines = [
        "# a trace",
        "",
        "0 1 0.1 0.1  # the first",
        '  {"arrival_s": 1, "durations_s": [2], "user": "a#b"}',
        "   ",
    ]
    first, second = parse_lines("t", lines)
    assert (list(first.durations_s), first.user, first.number) == ([0.1], DEFAULT_USER, 0)
    assert (list(second.durations_s), second.user, second.number) == ([2.0], "a#b", 1)


GOOD = "0 1 0.1 0.1"
BAD = [
    ("0 1 x 0.1", "numbers"),
    ("0 1 0.1", "as many durations as tasks"),
    ("0 2 0.1 0.1", "as many durations as tasks"),
    ("0 0 0.1", "as many durations as tasks"),
    ("-1 1 0.1 0.1", "arrival"),
    ("nan 1 0.1 0.1", "arrival"),
    ("0 1 0.1 -0.1", "duration"),
    ("0 1 0.1 inf", "duration"),
    ("0 1 -3 0.1", "duration"),
    ("{", "JSON"),
    ('{"durations_s": [1]}', "arrival"),
    ('{"arrival_s": "0", "durations_s": [1]}', "arrival"),
    ('{"arrival_s": true, "durations_s": [1]}', "arrival"),
    ('{"arrival_s": -1, "durations_s": [1]}', "arrival"),
    ('{"arrival_s": 0}', "durations_s"),
    ('{"arrival_s": 0, "durations_s": []}', "durations_s"),
    ('{"arrival_s": 0, "durations_s": 1}', "durations_s"),
    ('{"arrival_s": 0, "durations_s": [null]}', "duration"),
    ('{"arrival_s": 0, "durations_s": [-1]}', "duration"),
    ('{"arrival_s": 0, "durations_s": [1], "urgency": 2}', "urgency"),
    ('{"arrival_s": 0, "durations_s": [1], "priority": 1.5}', "priority"),
    ('{"arrival_s": 0, "durations_s": [1], "priority": -1001}', "priority"),
    ('{"arrival_s": 0, "durations_s": [1], "user": ""}', "user"),
    ('{"arrival_s": 0, "durations_s": [1], "user": 7}', "user"),
    ('{"arrival_s": 0, "durations_s": [1], "where": "gpu"}', "where"),
    ('{"arrival_s": 0, "durations_s": [1], "where": [1]}', "where"),
    ('{"arrival_s": 0, "durations_s": [1], "label": 1}', "label"),
    ('{"arrival_s": 0, "durations_s": [1], "stages": []}', "durations_s"),
    ('{"arrival_s": 0, "stages": []}', "stages"),
    ('{"arrival_s": 0, "stages": [1]}', r"stages[0]"),
    ('{"arrival_s": 0, "stages": [{"durations_s": [1]}]}', "name"),
    ('{"arrival_s": 0, "stages": [{"name": "a"}]}', "durations_s"),
    ('{"arrival_s": 0, "stages": [{"name": "a", "durations_s": [1], "after": ["b"]}]}', "stages[0] after"),
    ('{"arrival_s": 0, "stages": [{"name": "a", "durations_s": [1], "after": [[]]}]}', "stages[0] after"),
    ('{"arrival_s": 0, "stages": [{"name": "a", "durations_s": [1]}, {"name": "a", "durations_s": [1]}]}', "stages"),
    ('{"arrival_s": 0, "stages": [{"name": "a", "durations_s": [1], "user": "x"}]}', "user"),
    ('{"arrival_s": 0, "durations_s": [1, 1], "preferred": [[1]]}', "preferred"),
    ('{"arrival_s": 0, "durations_s": [1], "preferred": [1]}', "preferred"),
    ('{"arrival_s": 0, "durations_s": [1], "preferred": [[-1]]}', "preferred"),
    ('{"arrival_s": 0, "durations_s": [1], "preferred": [[0.5]]}', "preferred"),
]


@pytest.mark.parametrize(("line", "field"), BAD, ids=[line for line, _ in BAD])
def test_a_bad_line_is_an_error_of_one_line_that_names_line_and_field(line: str, field: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_lines("my.trace", ["# head", GOOD, line])
    message = str(caught.value)
    assert "my.trace:3" in message
    assert field in message
    assert "\n" not in message


def test_arrivals_that_go_back_are_named() -> None:
    with pytest.raises(InvalidOption, match=r"my\.trace:2.*0\.5.*not before.*1\.0"):
        parse_lines("my.trace", ["1 1 0.1 0.1", "0.5 1 0.1 0.1"])


@pytest.mark.parametrize(
    ("line", "column"),
    [("{", 2), ('{"arrival_s": 0, "durations_s": [1,, 2]}', 36), ('  {"arrival_s": 0 "durations_s": [1]}', 19)],
)
def test_an_error_in_json_names_the_column(line: str, column: int) -> None:
    with pytest.raises(InvalidOption, match=rf"my\.trace:2:{column}: "):
        parse_lines("my.trace", [GOOD, line])


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_a_trace_without_jobs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.trace"
    path.write_text(text)
    with pytest.raises(InvalidOption, match="at least one job"):
        read_trace(str(path))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\xff")
    for path in (tmp_path / "missing", tmp_path, binary):
        with pytest.raises(InvalidOption, match="readable text file") as caught:
            read_trace(str(path))
        assert path.name in str(caught.value)


# ---- stretching ------------------------------------------------------------------------------

LINES = ("10 2 0.3 0.2 0.4", "11 1 0.4 0.4", "14 1 1 1")


def trace() -> Trace:
    return Trace("t", tuple(parse_lines("t", LINES)))


def test_the_load_of_a_trace() -> None:
    """2 s of work in 4 s on 5 slots."""
    assert trace().load(5, 1) == pytest.approx(0.1)
    assert trace().load(1, 5) == pytest.approx(0.1)


@pytest.mark.parametrize("load", [0.05, 0.1, 0.9])
def test_stretched_to_a_load_it_brings_that_load_with_the_same_jobs(load: float) -> None:
    stretched = trace().at_load(load, 5, 1)
    assert stretched.load(5, 1) == pytest.approx(load)
    found, plain = list(stretched.generate(1, 5, 1)), list(trace().generate(1, 5, 1))
    assert [job.durations_s for job in found] == [job.durations_s for job in plain]
    for one, other in zip(found, plain, strict=True):
        assert one.arrival_s == pytest.approx(other.arrival_s * 0.1 / load)


def test_stretching_twice_is_stretching_once() -> None:
    assert trace().at_load(0.9, 5, 1).at_load(0.3, 5, 1).stretch == pytest.approx(trace().at_load(0.3, 5, 1).stretch)


def test_a_trace_begins_at_0_and_the_seed_changes_nothing() -> None:
    assert [job.arrival_s for job in trace().generate(1, 5, 1)] == [0.0, 1.0, 4.0]
    assert list(trace().generate(1, 5, 1)) == list(trace().generate(2, 5, 1))


def test_jobs_that_all_arrive_at_once_have_no_load_to_stretch() -> None:
    at_once = Trace("t", tuple(parse_lines("t", [GOOD, GOOD])))
    assert at_once.load(1, 1) == math.inf
    with pytest.raises(InvalidOption, match="arrive at different times"):
        at_once.at_load(0.5, 1, 1)


def test_nodes_that_the_cluster_does_not_have_are_named() -> None:
    jobs = parse_lines("t", ['{"arrival_s": 0, "durations_s": [1], "preferred": [[7]]}'])
    with pytest.raises(InvalidOption, match=r"preferred.*7.*0 to 4"):
        list(Trace("t", tuple(jobs)).generate(1, 5, 1))


def test_the_users_of_a_trace_are_those_of_its_jobs() -> None:
    lines = ['{"arrival_s": 0, "durations_s": [1], "user": "bob"}', GOOD.replace("0 1", "1 1", 1)]
    assert Trace("t", tuple(parse_lines("t", lines))).users == ("bob", DEFAULT_USER)
