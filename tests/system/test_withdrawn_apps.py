"""A node whose Python workers do not start: seen from all sides, and mended under way."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparrow_py import Client, Refused
from tests.support import tasks
from tests.support.daemons import Daemon, clean_environment, get_json, http, nodes_of, wait_for_nodes
from tests.support.executors import until_mended
from tests.support.waiting import TIMEOUT_S, wait_until


def test_an_app_that_does_not_start_is_named_everywhere_until_it_does(tmp_path: Path) -> None:
    mended, log = tmp_path / "mended", tmp_path / "node.log"
    python = until_mended(tmp_path, mended, "no such library today")
    with Daemon("scheduler", log=tmp_path / "scheduler.log") as scheduler:
        flags = ["--scheduler", scheduler.address, "--node-id", "n", "--slots", "2", "--python", str(python)]
        with Daemon("node_monitor", *flags, log=log) as monitor, Client(scheduler.address) as client:
            wait_for_nodes(scheduler.address, "n")
            wait_until(lambda: "python" in nodes_of(scheduler.address)["n"]["withdrawn"])
            with pytest.raises(Refused, match=r"do not start on n: .*\n?no such library today"):
                client.submit(tasks.square, 12).result(TIMEOUT_S)
            node = nodes_of(scheduler.address)["n"]
            assert "python" not in node["apps"]
            assert node["withdrawn"]["python"].endswith("exited with code 3; it said:\nno such library today")
            (here,) = get_json(monitor.address, "/v1/nodes")["nodes"]
            assert here["apps"]["python"] == {
                "state": "withdrawn", "executors": 0, "reason": node["withdrawn"]["python"],
            }  # fmt: skip
            assert http(monitor.address, "/readyz") == (503, "executors do not start, see /v1/nodes: python\n")
            listed = [sys.executable, "-m", "frontends.cli", "nodes", "-s", scheduler.address]
            table = subprocess.run(listed, capture_output=True, text=True, check=True, env=clean_environment())
            assert "n: executors of python do not start: cannot be started: " in table.stdout
            metrics = http(monitor.address, "/metrics")[1]
            assert "\nsparrow_node_monitor_withdrawn_apps 1.0\n" in metrics
            assert "\nsparrow_node_monitor_withdrawals_total 1.0\n" in metrics
            mended.touch()
            wait_until(lambda: "python" in nodes_of(scheduler.address)["n"]["apps"])
            assert client.submit(tasks.square, 12).result(TIMEOUT_S) == 144
            assert http(monitor.address, "/readyz") == (200, "ok\n")
            assert "\nsparrow_node_monitor_withdrawn_apps 0.0\n" in http(monitor.address, "/metrics")[1]
    said = log.read_text()
    assert said.count("n offers app python no more, as its executors do not start") == 1
    assert said.count("n offers app python again") == 1
