"""The node monitors' metrics, read from their cores when scraped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from node_monitor.blobs.blob_store import BlobStore
from node_monitor.core import NodeMonitorCore
from node_monitor.options import NodeMonitorOptions
from sparrow_py.daemon.histogram_metrics import by_app
from sparrow_py.timing.histogram import merged

COUNTERS = {
    "reservations": "Reservations queued.",
    "cancelled_reservations": "Reservations removed because their scheduler cancelled them.",
    "refused_reservations": "Reservations refused.",
    "asks": "getTask messages sent.",
    "noops": "Slots that asked and got no task.",
    "pushes": "Tasks for which nobody had asked and which free slots took.",
    "pushes_handed_back": "Such tasks that were handed back, as no slot was free or something was queued.",
    "placed": "Tasks that a plane had placed here and that started.",
    "placed_handed_back": "Such tasks that were handed back, as a rule since they had found no room in time.",
    "preempted": "Tasks that were stopped to make room for others.",
    "yields": "Tasks that were asked to yield their slots, as their leases were over and others came first.",
    "yields_late": "Of those, tasks that had not ended in time and were stopped.",
    "waits": "Times that tasks gave their slots back, as they waited for tasks of their own.",
    "waits_refused": "Times that tasks could not, and got an error.",
    "ask_timeouts": "getTask messages not answered in time.",
    "started": "Tasks given to executors.",
    "ended": "Tasks that executors finished or failed.",
    "handed_back": "Tasks handed back unstarted.",
    "executor_deaths": "Executors that died, but for idle ones that were ended to make room.",
    "start_failures": "Starts of executors that were in vain: they ended before they said hello.",
    "withdrawals": "Times that an app was offered no more, as its executors did not start.",
    "suspicions": (
        "Times that reservations were refused for a while, because tasks of several jobs had died here with their "
        "executors and none had ended in between."
    ),
}

BLOB_COUNTERS = {
    "fetched_bytes": "Bytes of large data fetched from other nodes.",
    "uploaded_bytes": "Bytes of large data that clients uploaded.",
    "served_bytes": "Bytes of large data sent to clients and other nodes.",
    "fetch_failures": "Large data that could not be fetched from the nodes named.",
    "no_room": "Large data that came, or was made here, and found no room or could not be written to the disk.",
}


def collect(
    cores: Sequence[NodeMonitorCore], store: BlobStore, options: NodeMonitorOptions, *, exemplars: bool = False
) -> Iterator[Metric]:
    """All metrics, summed over the node monitors of this process. `exemplars`: whether buckets of histograms name
    jobs."""
    yield InfoMetricFamily(
        "sparrow_node_monitor", "The profile, and the options that profiles set.", value=options.of_profile()
    )
    for name, help_text in COUNTERS.items():
        total = sum(getattr(core.counters, name) for core in cores)
        yield CounterMetricFamily(f"sparrow_node_monitor_{name}", help_text, value=total)
    help_text = "Seconds from getTask messages to the last of their answers, by app."
    round_trips = merged(core.counters.get_task_s for core in cores)
    yield by_app("sparrow_node_monitor_get_task_seconds", help_text, round_trips, exemplars=exemplars)
    for name, help_text in BLOB_COUNTERS.items():
        value = getattr(store.counters, name)
        yield CounterMetricFamily(f"sparrow_node_monitor_blob_{name}", help_text, value=value)
    gauges = {
        "slots": ("Slots.", sum(core.slots for core in cores)),
        "free_slots": ("Slots that neither run a task nor ask for one.", sum(core.free_slots for core in cores)),
        "waiting_tasks": (
            "Tasks that wait for tasks of their own, without a slot.",
            sum(core.waiting for core in cores),
        ),
        "idle_workers": (
            "Executors that are kept for their users while they have nothing to do.",
            sum(app.idle for core in cores for app in core.offered.values()),
        ),
        "withdrawn_apps": (
            "Apps that are not offered now, as their executors do not start.",
            sum(app.offer.withdrawn for core in cores for app in core.apps.values()),
        ),
        "blobs": ("Large inputs and results kept.", len(store.table)),
        "blob_bytes": ("Their bytes.", store.table.bytes_used),
        "lane_slots": ("Slots that placed tasks may hold.", sum(core.lane.slots for core in cores)),
        "lane_held": ("Slots that placed tasks hold.", sum(core.occupied for core in cores)),
        "lane_waiting": ("Placed tasks that wait for a slot.", sum(len(core.lane.waiting) for core in cores)),
        "queued_reservations": ("Reservations queued now.", sum(len(core.queue) for core in cores)),
    }
    for name, (help_text, value) in gauges.items():
        yield GaugeMetricFamily(f"sparrow_node_monitor_{name}", help_text, value=value)
