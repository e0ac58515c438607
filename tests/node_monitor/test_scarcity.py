"""A node whose disk is full, or that has no file descriptors left: tasks fail, the daemon lives and recovers."""

from __future__ import annotations

import errno
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontends.synthetic.tasks import spin_job
from sparrow_py import Client, Refused, TaskLost, TaskStatus
from tests.support import tasks
from tests.support.daemons import Daemon, http, wait_for_nodes, workers_of
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.real_starts]

DISK_BYTES = 4 << 20
FILES_MAX = 64


class Disk:
    """A small file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fillers: list[Path] = []

    def fill(self) -> None:
        """Leave no room: neither for bytes nor for files."""
        try:
            while True:
                filler = self.path / f"filler-{len(self._fillers)}"
                self._fillers.append(filler)
                filler.write_bytes(bytes(DISK_BYTES // 8))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        try:
            while True:
                filler = self.path / f"filler-{len(self._fillers)}"
                filler.touch()
                self._fillers.append(filler)
        except OSError as error:
            assert error.errno == errno.ENOSPC

    def clear(self) -> None:
        for filler in self._fillers:
            filler.unlink(missing_ok=True)
        self._fillers.clear()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    options = f"size={DISK_BYTES},nr_inodes={FILES_MAX}"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield Disk(path)
    subprocess.run(["umount", path], check=True)


def test_a_full_disk_fails_the_results_that_do_not_fit_and_nothing_else(tmp_path: Path, disk: Disk) -> None:
    with Daemon("scheduler", log=tmp_path / "scheduler.log") as scheduler:
        flags = ("--scheduler", scheduler.address, "--slots", "1", "--node-id", "node", "--blob-dir", str(disk.path))
        with Daemon("node_monitor", *flags, log=tmp_path / "node.log"), Client(scheduler.address) as client:
            wait_for_nodes(scheduler.address, "node")
            once = client.with_options(max_attempts=1)
            with pytest.raises(OSError, match=r"the result of \d+ bytes cannot be kept on the node: No space left"):
                once.submit(tasks.pattern, 2 * DISK_BYTES).result(TIMEOUT_S)
            disk.fill()
            with pytest.raises(OSError, match="No space left"):
                once.submit(tasks.pattern, DISK_BYTES // 4).result(TIMEOUT_S)
            assert once.submit(tasks.square, 3).result(TIMEOUT_S) == 9, "what is small needs no disk"
            with pytest.raises(TaskLost):
                once.submit(tasks.kill_worker).result(TIMEOUT_S)
            assert once.submit(tasks.square, 4).result(TIMEOUT_S) == 16, "nor does a new worker"
            large = tasks.pattern(DISK_BYTES // 2)
            with (
                Client(scheduler.address, submit_timeout_s=1.0) as hasty,
                pytest.raises(Refused, match="it cannot be written: No space left on device"),
            ):
                hasty.submit(tasks.digest, large).result(TIMEOUT_S)
            warnings = [line for line in (tmp_path / "node.log").read_text().splitlines() if "WARNING" in line]
            for what in ("the result of", "an upload of"):
                assert [line for line in warnings if f"no room in {disk.path}/sparrow-blobs for {what}" in line]
            disk.clear()
            assert once.submit(tasks.digest, large).result(TIMEOUT_S) == tasks.digest(large)
            assert once.submit(tasks.pattern, DISK_BYTES // 4).result(TIMEOUT_S) == tasks.pattern(DISK_BYTES // 4)


@pytest.mark.rest
def test_a_daemon_without_file_descriptors_starts_no_executor_until_it_has_some(tmp_path: Path, gate: Path) -> None:
    with Daemon("scheduler", log=tmp_path / "scheduler.log") as scheduler:
        flags = ("--scheduler", scheduler.address, "--slots", "2", "--node-id", "node")
        with Daemon("node_monitor", *flags, log=tmp_path / "node.log") as monitor, Client(scheduler.address) as client:
            wait_for_nodes(scheduler.address, "node")
            once = client.with_options(max_attempts=1)
            held = [once.submit(tasks.hold, gate, mark) for mark in ("a", "b")]
            wait_until(lambda: tasks.started(gate, "a", "b"), "both workers to be there")
            gate.touch()
            assert client.gather(held) == ["a", "b"]
            pid = monitor.process.pid
            enough = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, enough[1]))  # Those it has, and no other.
            with pytest.raises(TaskLost):
                once.submit(tasks.kill_worker).result(TIMEOUT_S)
            spins = client.submit_job(spin_job([0.001]))
            why = f"executor of app spin cannot be started: [Errno {errno.EMFILE}]"
            wait_until(lambda: why in monitor.log.read_text())
            assert once.submit(tasks.square, 4).result(TIMEOUT_S) == 16, "the link stands, and there is another worker"
            resource.prlimit(pid, resource.RLIMIT_NOFILE, enough)
            assert [task.status for task in spins.report(TIMEOUT_S).tasks] == [TaskStatus.FINISHED]
            wait_until(lambda: len(workers_of(pid)) >= 2, "another worker")
            assert http(monitor.address, "/readyz")[0] == 200
