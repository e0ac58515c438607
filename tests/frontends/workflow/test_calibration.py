"""Rates of engines: from measurements, from a file, and defaults."""

import math
from pathlib import Path

import pytest

from frontends.workflow.ir.dag import Dag, Join, Leaf, Operator, Sort
from frontends.workflow.mapping.calibration import (
    JOBS,
    Calibration,
    Measured,
    calibration_job,
    load,
    measured_rates,
    save,
)
from frontends.workflow.mapping.rates import DEFAULT_RATES, UNKNOWN_ENGINE, Rates, default_rates
from sparrow_py.errors import InvalidOption, InvalidRequest
from tests.support.workflow_plans import rates

ROW_BYTES = 40
DROPPED, WRITTEN = calibration_job("SCAN"), calibration_job("WRITE")


class Machine:
    """An engine of known rates that takes the time that they say."""

    def __init__(self, of: Rates, cannot: type[Operator] | None = None) -> None:
        self._of, self._cannot = of, cannot

    def measure(self, job: Dag, rows: int, cold: bool) -> Measured | None:
        if self._cannot is not None and job.of_type(self._cannot):
            return None
        (last,) = (one for one in job.operators if not isinstance(one, Leaf))
        bytes_in = rows * ROW_BYTES * len(last.inputs)
        bytes_out = 0 if job == DROPPED else rows * 10
        load_s = bytes_in / self._of.load_bytes_per_s
        seconds = self._of.start_cold_s if cold else self._of.start_warm_s
        seconds += bytes_in / self._of.pull_bytes_per_s + load_s + bytes_out / self._of.push_bytes_per_s
        if job not in (DROPPED, WRITTEN):
            seconds += bytes_in / self._of.process(last.keyword)
        return Measured(seconds, seconds * self._of.cpus, bytes_in, bytes_out, load_s)


TRUE = Rates(
    start_cold_s=3.0,
    start_warm_s=0.25,
    pull_bytes_per_s=2e6,
    load_bytes_per_s=4e6,
    push_bytes_per_s=1e6,
    process_bytes_per_s={"JOIN": 5e5, "SORT": 1e5},
    process_other_bytes_per_s=8e6,
    cpus=1.5,
)


def test_rates_follow_from_measurements() -> None:
    found = measured_rates(Machine(TRUE).measure)
    assert found.measured
    for name in ("start_cold_s", "start_warm_s", "pull_bytes_per_s", "load_bytes_per_s", "push_bytes_per_s", "cpus"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name)), name
    assert found.process_bytes_per_s == {
        name: pytest.approx(TRUE.process(name)) for name in JOBS if name not in ("SCAN", "WRITE")
    }
    assert found.process_other_bytes_per_s == pytest.approx(1e5)  # Of an operator that was not measured: the slowest.


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
    with pytest.raises(InvalidRequest, match="cannot run a job without work"):
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
        ('{"version": 1, "engines": {"duckdb": {}}}', r"start_cold_s"),
        ('{"version": 9, "engines": {}}', "version 1; this one is 9"),
        ('{"version": 1, "engines": {"d": {"start_cold_s": 1, "start_warm_s": 2, "pull_bytes_per_s": 1, '
         '"push_bytes_per_s": 1, "load_bytes_per_s": null, "process_bytes_per_s": {}, '
         '"process_other_bytes_per_s": 1, "cpus": 1}}}', "start_warm_s"),
        (" " * (2**20 + 1), "at most 1,048,576 bytes"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_calibration_is_named(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(InvalidOption, match=why) as error:
        load(path)
    assert error.value.value == str(path)


def test_a_file_that_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="can be written"):
        save(Calibration(), tmp_path / "no" / "where")
    with pytest.raises(InvalidOption, match="can be read"):
        load(tmp_path)
