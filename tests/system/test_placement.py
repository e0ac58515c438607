"""The placements of real schedulers and node monitors: whichever it is, every task runs once, and none is lost."""

from __future__ import annotations

import pytest

from frontends.synthetic.tasks import sleep_job
from scheduler.options import PLACEMENTS
from sparrow_py import Client, LocalCluster
from sparrow_py.job import TaskStatus
from tests.support.daemons import http
from tests.support.suites import rest_after


@pytest.mark.parametrize("placement", rest_after(1, *PLACEMENTS))
def test_jobs_run_on_all_nodes(placement: str) -> None:
    options = ["--placement", placement]
    with LocalCluster(2, 2, slots=2, scheduler_options=options) as cluster, Client(cluster.addresses) as client:
        jobs = [client.submit_job(sleep_job([0.002] * 10)) for _ in range(20)]
        reports = [job.report() for job in jobs]
        assert all(report.count(TaskStatus.FINISHED) == len(report.tasks) == 10 for report in reports)
        assert all(task.attempts == 1 for report in reports for task in report.tasks)
        assert len({task.node for report in reports for task in report.tasks}) == 2
        pages = [http(address, "/metrics")[1] for address in cluster.addresses]
        asked = [line for page in pages for line in page.splitlines() if line.startswith("sparrow_scheduler_asks_")]
        assert any(not line.endswith(" 0.0") for line in asked if "total" in line) == (placement == "sparrow")
