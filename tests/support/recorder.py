"""An outbox for any core that only remembers: for tests of single exchanges, message by message."""

from __future__ import annotations

from typing import Any, TypeVar

from sparrow_py.job import BlobRef
from sparrow_py.wire import messages as m

M = TypeVar("M")


class Recorder:
    """`sent` holds (to, message), in order."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.started: list[tuple[str, int]] = []
        self.killed: list[str] = []
        self.fetches: list[BlobRef] = []
        self.given_up: list[tuple[str, int, str]] = []
        self.uploads: list[tuple[str, str]] = []
        self.offer_changes: list[tuple[str, str]] = []

    def _record(self, to: str, message: Any) -> None:
        self.sent.append((to, message))

    to_node = to_client = to_scheduler = to_executor = _record

    def start_executor(self, app: str, places: int) -> None:
        self.started.append((app, places))

    def kill_executor(self, executor: str) -> None:
        self.killed.append(executor)

    def fetch(self, ref: BlobRef, user: str) -> None:
        self.fetches.append(ref)

    def give_up(self, hash_: str, size: int, user: str) -> None:
        self.given_up.append((hash_, size, user))

    def offer_changed(self, app: str, reason: str) -> None:
        self.offer_changes.append((app, reason))

    def upload_again(self, job: Any, hash_: str) -> None:
        self.uploads.append((job.id, hash_))

    def stream(self, scheduler: str, job: Any) -> None:
        self.sent.append((scheduler, "stream"))

    def take(self, kind: type[M]) -> list[tuple[str, M]]:
        """All sent of this kind, which are forgotten."""
        found = [pair for pair in self.sent if isinstance(pair[1], kind)]
        self.sent = [pair for pair in self.sent if not isinstance(pair[1], kind)]
        return found


def submission(job: str = "j", tasks: int = 1, **fields: Any) -> m.SubmitJob:
    """A submission; `fields` are those of `SubmitJob` or of its one `Stage`: of both, those of the job."""
    stage = {
        "app": "many",
        "common": b"",
        "runtime": "",
        "probe_ratio": 2.0,
        "prefetch": 0,
        "expected_duration_s": None,
    }
    whole = {
        "job": job, "epoch": 0, "name": "", "max_attempts": 3, "retry_failed": False, "queue_timeout_s": None,
        "report_placed": False,
    }  # fmt: skip
    for name, value in fields.items():
        (whole if name in m.SubmitJob.__struct_fields__ else stage)[name] = value
    return m.SubmitJob(stages=[m.Stage(**{"task_count": tasks, **stage})], **whole)


def reserve(ticket: int = 1, count: int = 1, **fields: Any) -> m.Reserve:
    """A reservation; `fields` are those of `Reserve`."""
    return m.Reserve(
        **{
            "ticket": ticket, "job": f"j{ticket}", "epoch": 0, "user": "anna", "weight": 1.0, "priority": 0,
            "app": "many", "count": count, "prefetch": 0, "expected_duration_s": None, **fields,
        }
    )  # fmt: skip
