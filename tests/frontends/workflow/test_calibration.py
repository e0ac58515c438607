"""Rates of engines: from measurements, from a file, and defaults."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from frontends.workflow.engines import engine
from frontends.workflow.ir.dag import Dag, Join, Leaf, Operator, Sort, While
from frontends.workflow.mapping.calibration import (
    JOBS,
    Calibration,
    Measured,
    _line,
    calibration_job,
    calibration_loop,
    load,
    measured_rates,
    save,
    vertices,
)
from frontends.workflow.mapping.rates import DEFAULT_RATES, UNKNOWN_ENGINE, Rates, default_rates
from sparrow_py.errors import InvalidOption, InvalidRequest
from tests.support.workflow_plans import rates

ROW_BYTES, EDGE_BYTES = 40, 26
DROPPED, WRITTEN = calibration_job("SCAN"), calibration_job("WRITE")


class Machine:
    """An engine of known rates that takes the time that they say."""

    def __init__(self, of: Rates, cannot: type[Operator] | None = None, *, graphs_only: bool = False) -> None:
        self._of, self._cannot, self._graphs_only = of, cannot, graphs_only

    def measure(self, job: Dag, rows: int, cold: bool) -> Measured | None:
        loops = job.of_type(While)
        if (self._cannot is not None and job.of_type(self._cannot)) or (self._graphs_only and not loops):
            return None
        (last,) = (one for one in job.operators if not isinstance(one, Leaf | While))
        bytes_in = rows * (ROW_BYTES * len(last.inputs) if not loops else EDGE_BYTES)
        bytes_out = 0 if job == DROPPED else rows * 10
        load_s = bytes_in / self._of.load_bytes_per_s
        seconds = self._of.start_cold_s if cold else self._of.start_warm_s
        seconds += bytes_in / self._of.pull_bytes_per_s + load_s + bytes_out / self._of.push_bytes_per_s
        for loop in loops:
            seconds += loop.iterations_max * self._iteration_s(rows)
        if job not in (DROPPED, WRITTEN) and not loops:
            seconds += self._of.operator_seconds(last.keyword, bytes_in)
        return Measured(seconds, seconds * self._of.cpus, bytes_in, bytes_out, load_s)

    def _iteration_s(self, edges: int) -> float:
        """Of the body's five operators: a join of edges and ranks, three over what is sent, one over what is gathered,
        of which plans assume as many rows."""
        ranks = vertices(edges)
        read = {"JOIN": [24 * edges + 16 * ranks], "ARITHMETIC": [24 * edges, 16 * edges], "PROJECT": [24 * edges],
                "AGGREGATE": [16 * edges]}  # fmt: skip
        return sum(self._of.iteration_seconds(keyword, size) for keyword, sizes in read.items() for size in sizes)


TRUE = Rates(
    start_cold_s=3.0,
    start_warm_s=0.25,
    pull_bytes_per_s=2e6,
    load_bytes_per_s=4e6,
    push_bytes_per_s=1e6,
    process_bytes_per_s={"JOIN": 5e5, "SORT": 1e5},
    process_other_bytes_per_s=8e6,
    operator_s={"JOIN": 0.5, "TOP": 2.0},
    iteration_operator_s=0.125,
    iteration_factor=0.5,
    cpus=1.5,
)
GRAPHS = replace(
    TRUE, load_bytes_per_s=math.inf, push_bytes_per_s=2e6, process_bytes_per_s={}, operator_s={}, iteration_factor=1.0
)
"""Of an engine that takes loops alone: what it reads and writes cannot be told apart."""


def test_rates_follow_from_measurements() -> None:
    found = measured_rates(Machine(TRUE).measure)
    assert found.measured
    for name in ("start_cold_s", "start_warm_s", "pull_bytes_per_s", "load_bytes_per_s", "push_bytes_per_s",
                 "iteration_operator_s", "iteration_factor", "cpus"):  # fmt: skip
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name)), name
    operators = [name for name in JOBS if name not in ("SCAN", "WRITE")]
    assert found.process_bytes_per_s == {name: pytest.approx(TRUE.process(name)) for name in operators}
    assert found.operator_s == {name: pytest.approx(TRUE.operator_s.get(name, 0.0), abs=1e-6) for name in operators}
    assert found.process_other_bytes_per_s == pytest.approx(1e5)  # Of an operator that was not measured: the slowest.


def test_an_engine_of_graphs_is_measured_by_loops() -> None:
    """Starts, what a byte takes that is read or written, and what an iteration takes come apart."""
    found = measured_rates(Machine(GRAPHS, graphs_only=True).measure)
    for name in ("start_cold_s", "start_warm_s", "pull_bytes_per_s", "push_bytes_per_s", "process_other_bytes_per_s",
                 "iteration_operator_s", "iteration_factor", "cpus"):  # fmt: skip
        assert getattr(found, name) == pytest.approx(getattr(GRAPHS, name)), name
    assert found.measured and not found.process_bytes_per_s


def test_the_loop_that_is_measured_is_one_that_engines_of_graphs_take() -> None:
    for name in ("scipy", "numba", "duckdb", "polars", "pandas"):
        assert engine(name).inexpressible(calibration_loop(3)) is None, name


def test_an_engine_without_loops_keeps_what_is_assumed_of_them() -> None:
    found = measured_rates(Machine(TRUE, cannot=While).measure)
    assert (found.iteration_operator_s, found.iteration_factor) == (0.0, 1.0)


def test_lines_go_by_relative_errors() -> None:
    """A small job is not lost beside a large one: noise of a tenth at the large one would hide all of its time."""
    start_s, slope = _line([(1e4, 0.020), (1e5, 0.110), (1e6, 1.11)])
    assert start_s + slope * 1e4 == pytest.approx(0.020, rel=0.1)
    assert _line([(1.0, 2.0), (2.0, 1.0)])[1] == 0.0


def test_what_an_engine_cannot_do_is_left_out() -> None:
    found = measured_rates(Machine(TRUE, cannot=Join).measure)
    assert "JOIN" not in found.process_bytes_per_s
    assert "SORT" in found.process_bytes_per_s
    assert measured_rates(Machine(TRUE, cannot=Sort).measure).process_other_bytes_per_s == pytest.approx(5e5)


def test_what_takes_no_time_has_a_large_rate() -> None:
    quick = rates(cold_s=0, warm_s=0, mib_per_s=1e12)
    found = measured_rates(Machine(quick).measure)
    assert math.isfinite(found.pull_bytes_per_s)
    assert found.load_bytes_per_s > 0


def test_measuring_needs_two_sizes_and_an_engine_that_can_read() -> None:
    with pytest.raises(InvalidRequest, match="sizes_rows"):
        measured_rates(Machine(TRUE).measure, (1000, 1000))
    with pytest.raises(InvalidRequest, match="neither a job without work nor a loop"):
        measured_rates(lambda job, rows, cold: None)


def test_defaults_say_that_they_are() -> None:
    calibration = Calibration().with_rates("duckdb", TRUE)
    assert calibration.rates("duckdb") == TRUE
    assert calibration.rates("polars") == default_rates("polars")
    assert not calibration.rates("polars").measured
    assert calibration.unmeasured(["duckdb", "polars"]) == ("polars",)
    assert default_rates("an engine of tomorrow") == UNKNOWN_ENGINE
    assert not any(one.measured for one in DEFAULT_RATES.values())


def test_a_calibration_is_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    assert load(path) == Calibration()
    rates = measured_rates(Machine(TRUE).measure)
    kept = Calibration({"duckdb": rates, "polars": measured_rates(Machine(default_rates("duckdb")).measure)})
    save(kept, path)
    assert load(path) == kept
    assert math.isinf(load(path).rates("polars").load_bytes_per_s)
    assert [one.name for one in tmp_path.iterdir()] == ["calibration.json"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "writes anew"),
        ('{"version": 2, "engines": {"duckdb": {}}}', r"start_cold_s"),
        ('{"version": 9, "engines": {}}', "version 2; this one is 9"),
        ('{"version": 2, "engines": {"d": {"start_cold_s": 1, "start_warm_s": 2, "pull_bytes_per_s": 1, '
         '"push_bytes_per_s": 1, "load_bytes_per_s": null, "process_bytes_per_s": {}, "process_other_bytes_per_s": 1, '
         '"operator_s": {}, "iteration_operator_s": 0, "iteration_factor": 1, "cpus": 1}}}', "start_warm_s"),
        (" " * (2**20 + 1), "at most 1,048,576 bytes"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_calibration_is_named(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(InvalidOption, match=why) as error:
        load(path)
    assert error.value.value == str(path)


def test_a_file_of_version_1_counts_as_nothing_measured(tmp_path: Path) -> None:
    """Its bytes were those of files."""
    path = tmp_path / "calibration.json"
    path.write_text('{"version": 1, "engines": {"duckdb": {"start_cold_s": 1}}}')
    assert load(path) == Calibration()


def test_a_file_that_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="can be written"):
        save(Calibration(), tmp_path / "no" / "where")
    with pytest.raises(InvalidOption, match="can be read"):
        load(tmp_path)
