"""The scheduler's metrics are what its core counts and has."""

from scheduler.book.deliveries import MESSAGE_BYTES
from scheduler.http.metrics import collect
from scheduler.options import SchedulerOptions
from sparrow_py.daemon.options import parse
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
