"""Limits of what a task may take of its node, as an operator sets them and executors are told of them."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from typing import NamedTuple

from sparrow_py.processes.process_control import lower_limit

VARIABLE_PREFIX = "SPARROW_EXECUTOR_TASK_"
"""With a field's name: the environment variable that tells an executor of the limit."""
CPU_GRACE_S = 1
"""At its limit a process gets SIGXCPU, which says why it ends; one that does not end is killed so much later."""


class TaskLimits(NamedTuple):
    """Limits of each process of a task; 0: none.

    memory_bytes: what it may write to and shares with nobody (RLIMIT_DATA): heap, stacks of threads, private maps.
    cpu_s: CPU seconds (RLIMIT_CPU). open_files: file descriptors (RLIMIT_NOFILE).
    """

    memory_bytes: int = 0
    cpu_s: int = 0
    open_files: int = 0

    @classmethod
    def from_environment(cls) -> TaskLimits:
        """The limits of which the node monitor told this executor."""
        return cls(*(int(os.environ.get(variable(name)) or 0) for name in cls._fields))

    def environment(self) -> Mapping[str, str]:
        """What an executor is told of them."""
        return {variable(name): str(value) for name, value in zip(self._fields, self, strict=True) if value}

    def impose(self) -> None:
        """Limit this process, and those that it will start, for good."""
        lower_limit(resource.RLIMIT_DATA, self.memory_bytes)
        lower_limit(resource.RLIMIT_NOFILE, self.open_files)
        lower_limit(resource.RLIMIT_CPU, self.cpu_s, grace=CPU_GRACE_S)


NO_LIMITS = TaskLimits()


def variable(name: str) -> str:
    """The environment variable of this field."""
    return VARIABLE_PREFIX + name.upper()


def allow_cpu(seconds: int) -> None:
    """Let this process, which may have used some CPU time, use so much more; then SIGXCPU ends it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
