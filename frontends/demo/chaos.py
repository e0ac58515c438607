"""Kills one node monitor and one scheduler with SIGKILL in the middle of the demo's job."""

from __future__ import annotations

from collections.abc import Sequence

from sparrow_py import JobReport, LocalCluster, TaskStatus
from sparrow_py.counted import counted
from sparrow_py.embedded.daemon_process import Daemon
from sparrow_py.wire.http_get import http_get_json

NODE_MONITOR_DIES_AFTER = 32
SCHEDULER_DIES_AFTER = 72
"""Tasks of the first stage after whose end the daemon is killed."""


class Chaos:
    """Kills daemons as the job goes on, and sums up what the kills cost."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.killed: list[str] = []

    def task_ended(self, ended: int) -> None:
        """`ended` tasks of the first stage have ended: kill what is due by now."""
        if not self.killed and ended >= NODE_MONITOR_DIES_AFTER:
            self._kill("node monitor", self._cluster.node_processes[-1], ended)
        if len(self.killed) == 1 and ended >= SCHEDULER_DIES_AFTER:
            self._kill("scheduler", self._busy_scheduler(), ended)

    def _busy_scheduler(self) -> Daemon:
        """The scheduler that has the job: to kill another one would show nothing."""
        processes = self._cluster.scheduler_processes
        busy = (process for process in processes if http_get_json(process.address, "/v1/jobs")["jobs"])
        return next(busy, processes[0])

    def _kill(self, kind: str, process: Daemon, ended: int) -> None:
        process.kill()
        self.killed.append(f"the {kind} with process id {process.pid} after {counted(ended, 'task')}")

    def verdict(self, reports: Sequence[JobReport]) -> str:
        """A text on the daemons that were killed, and on the tasks' outcomes."""
        tasks = [task for report in reports for task in report.tasks]
        lost = sum(task.status is TaskStatus.LOST for task in tasks)
        again = sum(task.attempts > 1 for task in tasks)
        killed = " and ".join(self.killed) or "nobody"
        return (
            f"Killed {killed}:\n{lost} lost. {counted(len(tasks), 'task', 'have')} ended, each once;"
            f" {again} took more than one attempt."
        )
