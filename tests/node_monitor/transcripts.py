"""Transcripts of a node monitor's core: what happens to it, and what it does, to be read like a story.

A file in `testdata` is a list of steps. Each is an event, then `----`, then what the core did: messages, and changes of
attempts' states. `python -m tests.node_monitor.transcripts` writes all files anew from what the core does now: read the
difference before you commit it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from node_monitor.attempts import Attempt
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, POOL, NodeCore
from tests.support.recorder import reserve

DIRECTORY = Path(__file__).parent / "testdata"
SHOWN = {
    "GetTasks": ("ask", "ticket", "count"),
    "Run": ("run", "task"),
    "Revoke": ("runs",),
    "Kill": ("runs",),
    "Report": ("attempt", "status", "error"),
    "HandBack": ("attempt", "reason"),
    "AttemptRuns": ("attempt",),
    "Fenced": ("job", "epoch"),
    "Claimed": ("job", "epoch", "running"),
    "Idle": ("free",),
    "ReservationsRefused": ("ticket", "count", "reason"),
}
"""What is shown of messages; of others the name."""


def files() -> list[Path]:
    """All transcripts."""
    return sorted(DIRECTORY.glob("*.txt"))


def played(text: str) -> str:
    """The transcript as the core plays it now: the same events, with what it does."""
    story = Story()
    out = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        events = [line for line in lines[: lines.index("----") if "----" in lines else None] if line not in comments]
        if not events:
            out.append(block)
            continue
        for event in events:
            story.play(event)
        out.append("\n".join([*comments, *events, "----", *story.told()]))
    return "\n\n".join(out) + "\n"


class Story:
    """A node to which the events of a transcript happen."""

    def __init__(self) -> None:
        self.node = NodeCore()
        self.told_of: dict[Attempt, int] = {}
        """Attempts to how many of their states were told."""

    def play(self, event: str) -> None:
        name, *words = shlex.split(event)
        named = dict(word.split("=", 1) for word in words if "=" in word)
        self.events[name](self, *(word for word in words if "=" not in word), **named)

    def told(self) -> list[str]:
        """What the core did since the last call: messages in order, then the attempts' changes."""
        outbox = self.node.outbox
        lines = [f"{to} <- {_shown(message)}" for to, message in outbox.sent]
        lines += [f"fetch {ref.hash[0]} from {', '.join(ref.at)}" for ref in outbox.fetches]
        lines += [f"end {executor}" for executor in outbox.killed]
        outbox.sent, outbox.fetches, outbox.killed = [], [], []
        for attempt in self.node.core.attempts.by_key.values():
            self.told_of.setdefault(attempt, 0)
        for attempt, told in self.told_of.items():
            states = attempt.story()
            if len(states) > told:
                lines.append(f"attempt {attempt.number}: {' -> '.join(states[max(0, told - 1) :])}")
            self.told_of[attempt] = len(states)
        return lines

    # ---- events ------------------------------------------------------------------------------

    def new(self, slots: str = "1", app: str = "pool", schedulers: str = "s") -> None:
        plan = MANY if app == "many" else POOL
        self.node = NodeCore(
            int(slots), [plan], schedulers=schedulers.split(","), report_idle=False, history_len_max=100
        )  # fmt: skip
        self.node.outbox.sent.clear()

    def reserve(
        self, ticket: str, count: str = "1", scheduler: str = "s", user: str = "anna", prefetch: str = "0"
    ) -> None:
        plan = next(iter(self.node.core.apps))
        message = reserve(int(ticket), int(count), app=plan, job=user, user=user, prefetch=int(prefetch))
        self.node.receive(message, scheduler=scheduler)

    def launch(
        self, *numbers: str, ask: str, scheduler: str = "s", job: str = "anna", epoch: str = "0", large: str = ""
    ) -> None:
        for text in numbers:
            payload: m.Data = BlobRef(large * 64, 1000, ("far:1",)) if large else b"p"
            attempt = int(epoch) << m.EPOCH_SHIFT | int(text)
            self.node.receive(m.Launch(int(ask), job, 0, int(text), attempt, payload), scheduler=scheduler)

    def done(self, executor: str, run: str, status: str = "finished", service_s: str = "0.0001") -> None:
        self.node.done(executor, int(run), TaskStatus(status), service_s=float(service_s))

    def returned(self, executor: str, *runs: str) -> None:
        self.node.returned(executor, *map(int, runs))

    def cancel(self, number: str, *running: str, scheduler: str = "s", job: str = "anna") -> None:
        self.node.receive(m.CancelAttempt(job, int(number), bool(running)), scheduler=scheduler)

    def died(self, executor: str) -> None:
        self.node.died(executor)

    def up(self, executor: str) -> None:
        self.node.core.executor_up(executor, next(iter(self.node.core.apps)), 1, self.node.now_s)
        self.node.settle()

    def came(self, blob: str) -> None:
        self.node.blobs.add(BlobRef(blob * 64, 1000, ("far:1",)))
        self.node.core.fetched("anna", blob * 64, "", self.node.now_s)
        self.node.settle()

    def gone(self, blob: str, reason: str = "404") -> None:
        self.node.core.fetched("anna", blob * 64, reason, self.node.now_s)
        self.node.settle()

    def tick(self, now_s: str) -> None:
        self.node.tick(float(now_s))

    def claim(self, job: str, scheduler: str, epoch: str, user: str = "anna") -> None:
        self.node.receive(m.Claim(job, user, int(epoch)), scheduler=scheduler)

    def forget(self, job: str, scheduler: str = "s") -> None:
        self.node.receive(m.ForgetJob(job), scheduler=scheduler)

    def down(self, scheduler: str) -> None:
        self.node.core.scheduler_down(scheduler, self.node.now_s)
        self.node.settle()

    def drain(self) -> None:
        self.node.core.drain(self.node.now_s)
        self.node.settle()

    events: dict[str, Callable[..., None]] = {  # noqa: RUF012 - a table, made once
        name: method for name, method in list(vars().items()) if callable(method) and name not in ("play", "told")
    }


def _shown(message: Any) -> str:
    name = type(message).__name__
    values = []
    for field in SHOWN.get(name, ()):
        value = getattr(message, field)
        if field == "attempt":
            epoch, value = value >> m.EPOCH_SHIFT, value & ((1 << m.EPOCH_SHIFT) - 1)
            values += [f"epoch={epoch}"] if epoch else []
        if isinstance(value, TaskStatus):
            value = value.value
        if value != "":
            values.append(f"{field}={value}")
    return " ".join([name, *values])


def main() -> None:
    """Write all transcripts anew."""
    for file in files():
        file.write_text(played(file.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
