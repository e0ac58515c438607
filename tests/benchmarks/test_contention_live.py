"""Figure 6.7 live: what its programs do, over loopback; and what it says where there can be no namespaces."""

from __future__ import annotations

import socket
import threading
from unittest import mock

import pytest
from click.testing import CliRunner

from benchmarks.flow import contention_live, live_traffic
from benchmarks.flow.__main__ import main
from benchmarks.flow.contention_live import FLOW, LIVE, SAMPLING, Live, outcome, row_of
from benchmarks.flow.outcome import Scale


@pytest.mark.parametrize("size", [1, 100_000, 3_000_000])
def test_a_task_reads_as_many_bytes_as_it_asks_the_store_for(size: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=live_traffic.serve, args=("",), kwargs={"listener": listener}, daemon=True).start()
    assert live_traffic.read_input("127.0.0.1", listener.getsockname()[1], size) == size


def test_tasks_and_background_bring_what_is_to_be_in_use() -> None:
    for live in LIVE.values():
        brought = live.rate * (live.size_min + live.size_max) / 2 + live.background
        assert brought == pytest.approx(live.utilisation * live.nodes * live.link)
        assert live.size_max / live.link < live.within_s - live.arrivals_s, "the last task has time to end"
    assert 2 * LIVE[Scale.QUICK].within_s < 120


def test_ratios_are_of_percentiles_and_tasks_that_have_not_ended_are_told() -> None:
    flow = row_of(FLOW, {"taken_s": [1.0] * 99 + [2.0], "unfinished": 0})
    sampling = row_of(SAMPLING, {"taken_s": [1.5] * 50 + [8.0] * 50, "unfinished": 3})
    assert (flow["p50 s"], flow["tasks"], sampling["p99 s"], sampling["not ended"]) == (1.0, 100, 8.0, 3)
    found = outcome(Live(), [flow, sampling], tells=True)
    (target,) = found.targets
    assert target.met and target.ours == f"{8 / flow['p99 s']:.4g} ×"


def test_where_there_are_no_namespaces_it_is_skipped_and_says_why() -> None:
    with mock.patch.object(contention_live, "why_no_namespaces", return_value="ip not installed"):
        result = CliRunner().invoke(main, ["contention-live", "--tiny"])
    assert result.exit_code == 0 and "skipped: " in result.stderr and "installed" in result.stderr
