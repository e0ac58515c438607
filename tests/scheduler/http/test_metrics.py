"""The scheduler's metrics are what its core counts and has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.core import Exemplar, Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from scheduler.audit import file as audit_file
from scheduler.book.deliveries import MESSAGE_BYTES
from scheduler.daemon import SchedulerDaemon
from scheduler.http.metrics import collect
from scheduler.options import SchedulerOptions
from sparrow_py.daemon.histogram_metrics import by_app
from sparrow_py.daemon.options import parse
from sparrow_py.job import TaskStatus
from sparrow_py.timing.histogram import Histogram
from sparrow_py.wire import messages as m
from tests.support.http_jobs import Scheduler


def test_they_are_read_from_the_core() -> None:
    scheduler = Scheduler()
    scheduler.post(app="app", tasks=[{}, {}, {}])
    scheduler.launch()
    scheduler.report()
    scheduler.core.client_up("c", "anna")
    scheduler.core.tell_client("c", m.Draining())
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in collect(scheduler.core, clients=5, options=parse(SchedulerOptions, ["--profile", "paper"]))
        for sample in metric.samples
    }
    assert values["sparrow_scheduler_launched_total",] == 3
    assert values["sparrow_scheduler_outcomes_total", "finished"] == 1
    assert values["sparrow_scheduler_outcomes_total", "lost"] == 0
    assert [values[f"sparrow_scheduler_{name}",] for name in ("jobs", "nodes", "clients")] == [1, 1, 5]
    assert values["sparrow_scheduler_undelivered_bytes",] == MESSAGE_BYTES
    info = values["sparrow_scheduler_info", "sparrow", "sparrow", "paper", "reserved", "false", "false", "false", "0.0"]
    assert info == 1


async def test_lines_that_the_audit_log_misses_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "BUFFER_BYTES_MAX", 1)  # The line that it has begun to work is all that fits.
    daemon = SchedulerDaemon(SchedulerOptions(port=0, audit_log=f"{tmp_path}/audit.jsonl"))
    await daemon.start()
    try:
        daemon._events.node_up("n", m.NodeInfo(1, {}, {}, {}), daemon.clock())
        (metric,) = [one for one in daemon._metrics(False) if one.name == "sparrow_scheduler_audit_lines_dropped"]
        assert [sample.value for sample in metric.samples] == [1]
    finally:
        await daemon.stop()


def buckets(metrics: Iterable[Metric], name: str, app: str) -> dict[str, tuple[float, Exemplar | None]]:
    """Bound to count and exemplar."""
    return {
        sample.labels["le"]: (sample.value, sample.exemplar)
        for metric in metrics
        for sample in metric.samples
        if sample.name == f"{name}_bucket" and sample.labels["app"] == app
    }


def after_one_task() -> Scheduler:
    """A task of the job "j" was reserved for at 1,000 s, began at 1,000.03 s and ran for 0.25 s."""
    scheduler = Scheduler()
    scheduler.post(app="app", job_id="j", tasks=[{}])
    scheduler.launch()
    task = scheduler.launched.pop()
    report = m.Report(task.job, task.task, task.attempt, TaskStatus.FINISHED, b"", "", 1000.03, 0.25)
    scheduler.node("n", report, now_s=1001.0)
    return scheduler


def test_waits_and_services_are_counted_by_app() -> None:
    metrics = list(collect(after_one_task().core, 0, SchedulerOptions()))
    waits = buckets(metrics, "sparrow_scheduler_task_wait_seconds", "app")
    assert [waits[bound][0] for bound in ("0.025", "0.05", "1800.0", "+Inf")] == [0, 1, 1, 1]
    services = buckets(metrics, "sparrow_scheduler_task_service_seconds", "app")
    assert [services[bound][0] for bound in ("0.1", "0.25", "+Inf")] == [0, 1, 1]
    assert all(exemplar is None for _, exemplar in (*waits.values(), *services.values()))
    sums = {sample.name: sample.value for metric in metrics for sample in metric.samples}
    assert sums["sparrow_scheduler_task_wait_seconds_sum"] == pytest.approx(0.03)
    assert sums["sparrow_scheduler_task_service_seconds_sum"] == 0.25


def test_tasks_are_counted_together_before_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.book.outcomes.PENDING_MAX", 2)
    scheduler, pending = Scheduler(), []
    scheduler.post(app="app", job_id="j", tasks=[{}] * 3)
    scheduler.launch()
    for _ in range(3):
        scheduler.report()
        pending.append(len(scheduler.core.counters.task_times.pending))
    assert pending == [1, 0, 1]
    assert sum(scheduler.core.counters.task_times.apps["app"].service.counts) == 3


def test_exemplars_name_the_job_of_the_latest_value() -> None:
    metrics = collect(after_one_task().core, 0, SchedulerOptions(), exemplars=True)
    services = buckets(metrics, "sparrow_scheduler_task_service_seconds", "app")
    assert services["0.25"][1] == Exemplar({"job_id": "j"}, 0.25, 1001.0)
    assert services["0.1"][1] is services["0.5"][1] is None


def test_a_name_that_is_too_long_for_an_exemplar_is_left_out() -> None:
    times = Histogram((1.0,))
    times.add([0.5], ["j" * 256], [1.0])
    assert buckets([by_app("t", "", {"a": times}, exemplars=True)], "t", "a") == {"1.0": (1, None), "+Inf": (1, None)}


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("text/plain", "text/plain"),
        ("application/openmetrics-text; version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
        ("application/openmetrics-text; version=abc", "text/plain"),
    ],
)
async def test_the_scraper_says_which_format_it_takes(
    scheduler: SchedulerDaemon, http: aiohttp.ClientSession, accept: str, content_type: str
) -> None:
    scheduler.core.counters.task_times.pending.append(("app", 0.5, 0.5, "j", 1.0))
    async with http.get("/metrics", headers={"Accept": accept}) as response:
        text = await response.text()
    assert (response.status, response.content_type) == (200, content_type)
    open_metrics = content_type == "application/openmetrics-text"
    assert text.endswith("# EOF\n") == ('# {job_id="j"} 0.5 1.0' in text) == open_metrics
    parse = openmetrics.text_string_to_metric_families if open_metrics else text_string_to_metric_families
    names = {metric.name for metric in parse(text)}
    assert "sparrow_scheduler_task_wait_seconds" in names


async def test_who_may_not_see_all_jobs_is_shown_no_exemplars(tmp_path: Path) -> None:
    secrets = {"client prometheus": "p" * 32, "cluster": "c" * 32}
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{who} {secret}\n" for who, secret in secrets.items()))
    tokens.chmod(0o600)
    daemon = SchedulerDaemon(SchedulerOptions(port=0, token_file=str(tokens)))
    daemon.core.counters.task_times.pending.append(("app", 0.5, 0.5, "j", 1.0))
    await daemon.start()
    shown = {}
    async with aiohttp.ClientSession(f"http://{daemon.address}") as session:
        for who, secret in secrets.items():
            headers = {"Accept": "application/openmetrics-text", "Authorization": f"Bearer {secret}"}
            async with session.get("/metrics", headers=headers) as response:
                shown[who] = "job_id" in await response.text()
    await daemon.stop()
    assert shown == {"client prometheus": False, "cluster": True}
