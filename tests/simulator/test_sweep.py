"""Sweeps: resumed, refused, and the same in one process or several."""

import fcntl
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from loadgen.traces import Trace, parse_lines
from simulator.cluster import Cluster
from simulator.figures import sweep
from simulator.figures.sweep import Point
from simulator.policies import Settings
from sparrow_py.errors import InvalidOption

TRACE = ['{"arrival_s": 0, "durations_s": [0.1, 0.2]}', '{"arrival_s": 1, "durations_s": [0.1], "user": "b"}']


def point(seed: int = 1, **fields: object) -> Point:
    cluster, workload = Cluster(nodes=10), Synthetic(tasks=3, jobs=20, load=0.5)
    return Point(**({"cluster": cluster, "workload": workload, "policy": "central", "seed": seed} | fields))  # type: ignore[arg-type]


POINTS = [point(seed, policy=policy) for seed in (1, 2) for policy in ("central", "sparrow")]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Point]:
    """The points that were computed and not read from the file."""
    seen: list[Point] = []
    real = sweep.compute

    def compute(point: Point) -> sweep.Figures:
        seen.append(point)
        return real(point)

    monkeypatch.setattr(sweep, "compute", compute)
    return seen


def test_figures_come_by_key_and_nothing_is_computed_twice(tmp_path: Path, computed: list[Point]) -> None:
    first = sweep.run("test", [*POINTS, POINTS[0]], tmp_path / "r.jsonl", processes=1)
    assert [one.key for one in computed] == [one.key for one in POINTS] == list(first)
    assert first[POINTS[0].key]["response_p50_ms"] > 0
    again = sweep.run("test", [*POINTS, point(3)], tmp_path / "r.jsonl", processes=1)
    assert len(computed) == len(POINTS) + 1
    assert {key: again[key] for key in first} == first


@pytest.mark.rest
def test_several_processes_find_the_same(tmp_path: Path) -> None:
    alone = sweep.run("test", POINTS, tmp_path / "alone.jsonl", processes=1)
    assert sweep.run("test", POINTS, tmp_path / "together.jsonl", processes=2) == alone


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2}, {"policy": "batch"}, {"cluster": Cluster(nodes=11)}, {"settings": Settings(probe_ratio=3)},
        {"workload": Synthetic(tasks=3, jobs=20, load=0.5, durations=Durations(mean_ms=101))},
    ],
)  # fmt: skip
def test_every_setting_makes_another_key(change: dict[str, object]) -> None:
    assert point(**change).key != point().key  # type: ignore[arg-type]


def test_a_key_is_the_same_everywhere() -> None:
    assert point().key == point().key
    trace = Trace("here.jsonl", tuple(parse_lines("here.jsonl", TRACE)))
    elsewhere = Trace("there.jsonl", tuple(parse_lines("there.jsonl", TRACE)))
    shorter = Trace("here.jsonl", tuple(parse_lines("here.jsonl", TRACE[:1])))
    assert point(workload=trace).key == point(workload=elsewhere).key != point(workload=shorter).key
    assert point(workload=Trace("here.jsonl", trace.lines, 2.0)).key != point(workload=trace).key


def test_a_line_that_was_not_finished_is_computed_again(tmp_path: Path, computed: list[Point]) -> None:
    path = tmp_path / "r.jsonl"
    whole = sweep.run("test", POINTS, path, processes=1)
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    computed.clear()
    assert sweep.run("test", POINTS, path, processes=1) == whole
    assert [one.key for one in computed] == [POINTS[-1].key]
    assert path.read_bytes() == content


def test_a_header_that_was_not_finished_is_no_results(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    sweep.run("test", [], path, processes=1)
    header = path.read_bytes()
    path.write_bytes(header[:7])
    sweep.run("test", [], path, processes=1)
    assert path.read_bytes() == header


def of_another_sweep(content: bytes) -> bytes:
    return content.replace(b'"sweep":"test"', b'"sweep":"other"')


def of_another_format(content: bytes) -> bytes:
    return content.replace(b'"format":1', b'"format":99')


def of_other_code(content: bytes) -> bytes:
    return content.replace(sweep.code_digest().encode(), b"0123456789abcdef")


def with_a_broken_line(content: bytes) -> bytes:
    return content + b"{]\n"


@pytest.mark.parametrize(
    "spoil",
    [
        of_another_sweep, of_another_format, of_other_code, with_a_broken_line, lambda _: b"some text\nmore\n",
        lambda _: b"text without end", lambda _: b"[1]\n",
    ],
)  # fmt: skip
def test_a_file_that_is_not_this_sweep_s_is_refused_by_name_and_left_alone(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "r.jsonl"
    sweep.run("test", POINTS[:1], path, processes=1)
    spoilt = spoil(path.read_bytes())
    path.write_bytes(spoilt)
    with pytest.raises(InvalidOption, match=r"r\.jsonl") as caught:
        sweep.run("test", POINTS, path, processes=1)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == spoilt


def test_two_sweeps_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InvalidOption, match="no other command"):
            sweep.run("test", POINTS, path, processes=1)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOption, match="results"):
        sweep.run("test", POINTS, tmp_path / "file" / "r.jsonl", processes=1)


def test_results_are_lines_of_json_with_a_header(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    sweep.run("test", POINTS, path, processes=1)
    header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert header == {"format": sweep.FORMAT, "sweep": "test", "code": sweep.code_digest()}
    assert [line["key"] for line in lines] == [one.key for one in POINTS]
