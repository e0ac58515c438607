"""Celery: a worker with a pool of processes, over a Redis server that is broker and result backend.

Its worker imports this module, so Celery's app is made here where `BROKER` is in the environment.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.peers.peer import Library
from benchmarks.peers.tasks import nap

BROKER = "PEERS_BROKER"
HOST = "127.0.0.1"
STARTS_WITHIN_S = 30.0


def _app(broker: str) -> Any:
    from celery import Celery as App

    app = App("peers", broker=f"redis://{broker}/0", backend=f"redis://{broker}/1")
    pickled = {"task_serializer": "pickle", "result_serializer": "pickle", "accept_content": ["pickle"]}
    app.conf.update(pickled, worker_hijack_root_logger=False)
    app.task(_call, name="peers.call")
    return app


def _call(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    return function(*arguments)


if BROKER in os.environ:
    app = _app(os.environ[BROKER])


class Celery(Library):
    """`celery worker` with its pool of forks. Arguments and results are pickled, as its JSON knows no functions."""

    name = "celery"
    packages = ("celery", "redis")
    programs = {"redis-server": "apt-get install redis-server"}  # noqa: RUF012
    scheduler = "celery"

    def start(self, slots: int) -> None:
        """Redis with the settings that it has without a configuration file."""
        self._directory = tempfile.TemporaryDirectory(prefix="celery-", ignore_cleanup_errors=True)
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        broker = f"{HOST}:{port}"
        environment = {**os.environ, BROKER: broker, "C_FORCE_ROOT": "1"}  # Else root may not unpickle.
        redis = ["redis-server", "--port", str(port), "--bind", HOST, "--dir", self._directory.name]
        worker = [sys.executable, "-m", "celery", "-A", "benchmarks.peers.systems.celery_redis", "worker"]
        worker += ["--concurrency", str(slots), "-l", "warning"]
        self._processes = [subprocess.Popen(redis, stdout=subprocess.DEVNULL)]
        _wait_for_port(port)
        self._processes.append(subprocess.Popen(worker, env=environment, stdout=subprocess.DEVNULL))
        self._app = _app(broker)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """An `AsyncResult`."""
        return self._app.tasks["peers.call"].delay(function, arguments)

    def result(self, future: Any) -> Any:
        """Of one. `ResultSet.join` for many would look every half second where a message came too soon."""
        return future.get()

    def job(self, duration_s: float, tasks: int, done: Callable[[], None]) -> None:
        """Results call back while `pass_time` takes them from the backend."""
        for number in range(tasks):
            self.submit(nap, duration_s, number).then(lambda _: done())

    def pass_time(self, duration_s: float) -> None:
        """Take what Redis publishes."""
        until_s = time.monotonic() + duration_s
        while (left_s := until_s - time.monotonic()) > 0:
            self._app.backend.result_consumer.drain_events(timeout=left_s)

    def stop(self) -> None:
        """The worker first."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait()
        self._directory.cleanup()


def _wait_for_port(port: int) -> None:
    deadline_s = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
