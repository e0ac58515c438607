"""Celery: workers over a Redis server, which is broker and result backend, both with the settings they come with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from benchmarks.faults_peers.faults import SLOTS, WORKERS, Fault
from benchmarks.faults_peers.network import WORKER_NAMES
from benchmarks.faults_peers.processes import Processes
from benchmarks.faults_peers.redis_server import redis_missing, start_redis
from benchmarks.faults_peers.system import Cluster, Outcome, Setting, System, wait_until
from benchmarks.laboratory.network import Network

LATE: dict[str, object] = {"task_acks_late": True, "task_reject_on_worker_lost": True}
VISIBLE_AGAIN: dict[str, object] = {"broker_transport_options": {"visibility_timeout": 10}}
BROKER = "FAULTS_PEERS_BROKER"
SETTINGS = "FAULTS_PEERS_CELERY"


def _setting(name: str, celery: dict[str, object], **options: str) -> Setting:
    return Setting(name, {SETTINGS: json.dumps(celery)}, options)


class Celery(System):
    """`celery worker` with its pool of processes."""

    name = "celery"
    packages = ("celery", "redis")

    def missing(self) -> str:
        """Besides the packages a broker."""
        return super().missing() or redis_missing()

    def settings(self, fault: Fault) -> Sequence[Setting]:
        """Late acknowledgement is what its documentation advises for tasks that may run twice."""
        default = Setting()
        late = _setting("acks_late, reject_on_worker_lost", LATE)
        late_and_soon = _setting("the same two, visibility_timeout 10 s", LATE | VISIBLE_AGAIN)
        if fault in (Fault.WORKER_KILLED, Fault.NETWORK_CUT):
            return [default, late_and_soon]
        if fault is Fault.TASK_SEGFAULTS:
            return [default, late]
        if fault is Fault.SCHEDULER_RESTARTED:
            return [default, _setting("Redis with appendonly", {}, **{"--appendonly": "yes"})]
        return [default]

    def start(self, processes: Processes, network: Network, setting: Setting) -> Cluster:
        """The broker is what schedules."""
        redis = start_redis(processes, network, *[part for option in setting.options.items() for part in option])
        processes.environment[BROKER] = redis.address
        command = ["celery", "-A", "benchmarks.faults_peers.celery_app", "worker", "--concurrency", str(SLOTS)]
        workers = [
            processes.python(
                name, [*command, "-n", f"{name}@{network.address(name)}", "-l", "info"], network.within(name)
            )
            for name in WORKER_NAMES
        ]
        return Cluster(redis.address, lambda: redis.process, lambda: processes.start("redis", redis.command), workers)

    def outcomes(self, address: str, warm_up: int, tasks: Sequence[tuple[int, str, str]]) -> Iterator[Outcome | None]:
        """A `ResultSet`, whose results come as they are there."""
        from celery import states
        from celery.result import ResultSet

        from benchmarks.faults_peers import celery_app

        inspect = celery_app.app.control.inspect(timeout=1)
        wait_until(lambda: len(inspect.ping() or {}) == WORKERS, f"{WORKERS} workers")
        ResultSet([celery_app.warm_up.delay(number) for number in range(warm_up)]).get()
        results = [celery_app.work.delay(*task) for task in tasks]
        numbers = {result.id: task[0] for result, task in zip(results, tasks, strict=True)}
        yield None
        for task_id, meta in ResultSet(results).iter_native():
            yield numbers[task_id], None if meta["status"] == states.SUCCESS else meta["result"]
