"""Errors of workflows that run.

SparrowError
├── WorkflowFailed    a job failed on every engine that could run it, or for a reason that no engine helps against
├── StoreUnusable     the store cannot be written or read here
├── StoreFull         relations between jobs would take more than the store may hold
├── NothingToResume   no earlier run of this workflow on these tables was interrupted
└── NoEngines         no node offers the app `workflow`, or none of the engines that are wanted
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparrow_py.errors import SparrowError


class WorkflowFailed(SparrowError):
    """The workflow cannot be run to its end. earlier: the jobs that failed before, and why.

    resumable: whether the store has kept what was done.
    """

    def __init__(self, reason: str, earlier: Iterable[str] = (), *, resumable: bool = False) -> None:
        self.reason, self.earlier, self.resumable = reason, tuple(earlier), resumable
        before = "".join(f"\n  before: {one}" for one in self.earlier)
        super().__init__(f"the workflow failed: {reason}{before}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _failed, (self.reason, self.earlier, self.resumable)


def _failed(reason: str, earlier: tuple[str, ...], resumable: bool) -> WorkflowFailed:
    return WorkflowFailed(reason, earlier, resumable=resumable)


class StoreUnusable(SparrowError):
    """The store in this directory cannot be used, for this reason."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory, self.reason = directory, reason
        super().__init__(f"store {directory}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.directory, self.reason)


class StoreFull(SparrowError):
    """The store in this directory holds more bytes than it may."""

    def __init__(self, directory: str, used: int, most: int) -> None:
        self.directory, self.used, self.most = directory, used, most
        super().__init__(
            f"store {directory}: {used:,} bytes; at most {most:,} are allowed (store_bytes_max, "
            "SPARROW_WORKFLOW_STORE_BYTES_MAX)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.directory, self.used, self.most)


class NothingToResume(SparrowError):
    """The store has nothing of an earlier run of this workflow."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        super().__init__(
            f"store {directory}: no run of this workflow on these tables was interrupted; run it without resume"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.directory,)


class NoEngines(SparrowError):
    """No engine can be used, for this reason."""
