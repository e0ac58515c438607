"""What is kept of a client's options from one job to the next is never out of date, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from sparrow_py import CallOptions, InvalidRequest, JobSpec, Speculation, call_jobs
from sparrow_py.call_jobs import OPTIONS_KEPT_MAX


def checked_job(options: CallOptions) -> JobSpec:
    spec = options.job("name", b"function", [b"arguments"])
    options.check_calls(spec)
    return spec


def test_options_are_checked_once(checked: list[JobSpec]) -> None:
    options = CallOptions(probe_ratio=3.0, where=("zone == eu",), avoid=("other",))
    jobs = [checked_job(options) for _ in range(3)]
    assert checked == jobs[:1]
    assert jobs[0] == jobs[1] == jobs[2]
    assert (jobs[2].probe_ratio, jobs[2].where, jobs[2].avoid) == (3.0, ("zone == eu",), ("other",))
    assert (jobs[2].name, jobs[2].common, jobs[2].tasks) == ("name", b"function", [b"arguments"])


def test_equal_options_are_options_of_their_own(checked: list[JobSpec]) -> None:
    one, other = CallOptions(prefetch=3), CallOptions(prefetch=3)
    checked_job(one)
    checked_job(other)
    assert len(checked) == 2


@pytest.mark.parametrize(
    "wrong",
    [{"probe_ratio": 0.5}, {"max_attempts": 1, "speculate": Speculation()}, {"where": ("zone",)}, {"avoid": ("",)}],
)
def test_options_that_cannot_be_are_refused_each_time(wrong: dict[str, Any]) -> None:
    options = CallOptions(**wrong)
    told = set()
    for _ in range(2):
        with pytest.raises(InvalidRequest) as error:
            checked_job(options)
        told.add(str(error.value))
    assert len(told) == 1


def test_a_demand_that_changes_counts_at_once() -> None:
    demand = {"cpu": 1.0}
    options = CallOptions(demand=demand)
    assert checked_job(options).demand == {"cpu": 1.0}
    demand["cpu"] = 2.0
    assert checked_job(options).demand == {"cpu": 2.0}
    demand["cpu"] = -1.0
    with pytest.raises(InvalidRequest, match="demand"):
        checked_job(options)


@pytest.mark.parametrize("field", ["where", "avoid"])
def test_a_list_that_changes_counts_at_once(field: str) -> None:
    names: list[str] = []
    options = CallOptions(**{field: names})
    checked_job(options)
    names.append("")
    with pytest.raises(InvalidRequest, match=field):
        checked_job(options)


def test_no_more_than_so_many_options_are_kept() -> None:
    for _ in range(3 * OPTIONS_KEPT_MAX):
        checked_job(CallOptions())
        assert len(call_jobs._kept) <= OPTIONS_KEPT_MAX
