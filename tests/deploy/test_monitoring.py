"""deploy/monitoring: alerts and panels ask for metrics that there are; each alert has its runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from scheduler.options import SchedulerOptions
from sparrow_py.constraints import parse
from sparrow_py.job import LOST
from sparrow_py.wire import messages as m
from tests.support.documents import ROOT, headings, section
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, node_info

HERE = ROOT / "deploy" / "monitoring"
METRIC = re.compile(r"\bsparrow_\w+")
JOBS = {"sparrow-scheduler", "sparrow-node-monitor"}
"""Of Prometheus' scrapes, as docs/deploy.md names them."""


def metrics() -> set[str]:
    """All that docs/metrics.md lists, which another test holds against the daemons."""
    return set(re.findall(r"^\| `(sparrow_\w+)` \|", (ROOT / "docs" / "metrics.md").read_text("utf-8"), re.M))


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((HERE / "alerts.yaml").read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HERE / "dashboard.json").read_text("utf-8"))["panels"]
    return found


def test_alerts_ask_for_metrics_that_there_are() -> None:
    named = {name for alert in alerts() for name in METRIC.findall(alert["expr"])}
    assert len(named) >= 8
    assert named <= metrics()


def test_panels_ask_for_metrics_that_there_are() -> None:
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    assert all(METRIC.search(expression) for expression in expressions)
    assert {name for expression in expressions for name in METRIC.findall(expression)} <= metrics()
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_panels_do_not_cover_each_other() -> None:
    places = [panel["gridPos"] for panel in panels()]
    covered = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(covered) == len(set(covered))
    assert max(x for x, _ in covered) < 24


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert headings(section("docs/deploy.md", "Runbooks"), 3) == names
    assert [alert["annotations"]["runbook"] for alert in alerts()] == [
        f"docs/deploy.md#{name.lower()}" for name in names
    ]


def submit(rig: SchedulerRig) -> None:
    """A job of a task that only a node with this attribute may run."""
    rig.client(submission(where=(parse("where", "rack == r7"),)), m.AddTasks("j", 0, [b"p"]))


def test_what_no_node_may_run_is_refused_or_lost_before_nothing_starts_is_told() -> None:
    """As the runbooks of these three alerts say: so none of such tasks waits when that alert comes."""
    rig = SchedulerRig("n")
    submit(rig)
    (refused,) = rig.take(m.JobRefused)
    assert refused.reason.startswith("no node monitor satisfies")
    rig = SchedulerRig()
    rig.node_up("n", node_info(attributes={"rack": "r7"}))
    submit(rig)
    rig.node_down("n")
    rig.node_up("other")
    wait_s = SchedulerOptions().wait_for_nodes_s
    rig.tick(wait_s)
    (lost,) = rig.take(m.Outcome)
    assert lost.status is LOST and lost.error == f"no node that may run it was connected for {wait_s:g} s"

    (alert,) = [one for one in alerts() if one["alert"] == "SparrowNothingStarts"]
    assert alert["for"] == "5m" and "[5m]" in alert["expr"] and wait_s < 600
    assert "ten minutes" in runbook("SparrowNothingStarts") and "`wait_for_nodes_s`" in runbook("SparrowNothingStarts")
    assert "`no node monitor satisfies …`" in runbook("SparrowJobsRefused")
    assert f"`{lost.error}`" in runbook("SparrowTasksLost")


def runbook(alert: str) -> str:
    return section("docs/deploy.md", alert)


def test_scrapes_are_named_as_the_document_says() -> None:
    said = set(re.findall(r"job_name: (\S+)", section("docs/deploy.md", "Monitoring")))
    asked = {job for alert in alerts() for job in re.findall(r'job="([^"]+)"', alert["expr"])}
    assert said == asked == JOBS


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("words", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]])
def test_prometheus_accepts_the_rules_and_they_say_what_they_should(words: list[str]) -> None:
    done = subprocess.run(["promtool", *words], cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
