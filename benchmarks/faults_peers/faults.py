"""The faults, and the job that meets them."""

from __future__ import annotations

from enum import StrEnum

WORKERS = 2
SLOTS = 2
"""Of each worker."""
TASKS = 60
ODD_TASK = 7
"""The task that crashes, or whose result cannot be sent."""
"""Of the job, unless told otherwise."""
STARTS_BEFORE = 16
"""Tasks that have started when a process is killed or the network is cut."""
RESTART_AFTER_S = 2.0
"""What a supervisor takes to start a scheduler again."""


class Fault(StrEnum):
    """What goes wrong."""

    SCHEDULER_KILLED = "scheduler_killed"
    SCHEDULER_RESTARTED = "scheduler_restarted"
    WORKER_KILLED = "worker_killed"
    TASK_SEGFAULTS = "task_segfaults"
    UNPICKLABLE_RESULT = "unpicklable_result"
    NETWORK_CUT = "network_cut"


OF_THE_TASK = (Fault.TASK_SEGFAULTS, Fault.UNPICKLABLE_RESULT)
"""Nothing is done to the cluster: the fault is there from submission on."""
OF_A_WORKER = (Fault.WORKER_KILLED, Fault.NETWORK_CUT)
"""The worker concerned must have begun with the job."""

MEANING = {
    Fault.SCHEDULER_KILLED: "SIGKILL of the process that schedules (scheduler, head node, broker) and all below it",
    Fault.SCHEDULER_RESTARTED: f"the same, started again on its port {RESTART_AFTER_S:g} s later",
    Fault.WORKER_KILLED: f"SIGKILL of one of {WORKERS} workers with all its processes, for good",
    Fault.TASK_SEGFAULTS: "one task ends its process with a segmentation fault each time it runs",
    Fault.UNPICKLABLE_RESULT: "one task returns a lock",
    Fault.NETWORK_CUT: f"one of {WORKERS} workers is no longer reached, without a word, for good",
}
