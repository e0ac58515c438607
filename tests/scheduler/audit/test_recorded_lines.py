"""The lines that each message and event leaves in the audit log, byte for byte as `testdata/lines.jsonl` has them.

A script of all messages that pass a scheduler's core is played past a core that does nothing. From the root of the
repository `python -m tests.scheduler.audit.test_recorded_lines` writes the file anew, after a change that is meant.
"""

import asyncio
import itertools
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from scheduler.audit.audited_core import AuditedCore
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m

RECORDED = Path(__file__).parent / "testdata/lines.jsonl"
BEGIN_S = 1_700_000_000.0
LONG = "begin" + "x" * 2000 + "end"
ATTEMPT = (3 << m.EPOCH_SHIFT) + 17
BLOB = BlobRef("ab" * 32, 1 << 30, ("127.0.0.1:1",))
TAKEN = (m.Goodbye, m.Renew, m.TaskSays, m.TaskGone, m.TaskHears, m.TaskHeard)
"""Messages about a link, and those that carry the links of clients within tasks: no core sees them."""


def stage(tasks: int, name: str = "") -> m.Stage:
    return m.Stage("app", tasks, b"common", "3.11", 2.0, 0, 0.5, {"cpu": 1.0}, name)


DETACHED = m.SubmitJob("j", 0, "", [stage(8)], 3, False, None, False)
FROM_CLIENTS: list[tuple[str, str, Any]] = [
    ("c#1", "ann", m.SubmitJob("j", 0, "", [stage(8)], 3, False, None, False)),
    ("c#1", 'b"öb\n', m.SubmitJob("job 2", 2, "náme", [stage(0, "a"), stage(3, "b")], 1, True, 5.0, True, 9.0, ("j",))),
    ("c#1", "ann", m.SubmitJob("empty", 0, "", [], 1, False, None, False, instance=7, acknowledges=True, age_s=1.5)),
    ("c#1", "ann", m.AddTasks("j", 0, [b"payload", BLOB], {1: m.TaskDetail(("n",), ((0, 1),))})),
    ("c#1", "ann", m.CancelJob("j")),
    ("c#1", "ann", m.CancelJob("j", True)),
    ("c#1", "ann", m.CancelTasks("j", [1, 2, 70_000])),
    ("c#1", "ann", m.CancelTasks("j", [], True)),
    ("c#1", "ann", m.Known("j", [m.KnownOutcome(0, TaskStatus.FINISHED, b"r")], {1: 2}, ((2, 3),), ("memory",))),
    ("c#1", "ann", m.CountKnown("j", {1: 2})),
    ("c#1", "ann", m.UsingKnown("j", 1)),
    ("c#1", "ann", m.Received(0)),
    ("c#1", "ann", m.AskPlaced("j", 1, [0])),
    ("c#1", "ann", m.BlobAt("j", BLOB)),
    ("c#1", "ann", m.FinishedElsewhere("j", 5, b"result")),
    ("c#1", "ann", m.GiveResults("j", {9: b"result"}, {10: (TaskStatus.FAILED, b"", "error")})),
    ("c#1", "ann", m.GiveBack("j", [m.Outcome("j", 0, TaskStatus.FINISHED, b"r", "", 1, "n", None, None, None)])),
    ("c#1", "ann", m.Detach(DETACHED, 60.0)),
    ("c#1", "ann", m.Attach("j", 7)),
]
TO_CLIENTS: list[tuple[str, Any]] = [
    ("c#1", m.JobAccepted("j")),
    ("c#1", m.JobRefused("j", 'no node has "gpu"; at most 3 tasks are held', "where", 1.5)),
    ("c#1", m.JobRefused("j", LONG)),
    ("c#1", m.Placed("j", 0)),
    ("c#1", m.Outcome("j", 0, TaskStatus.FINISHED, b"result", "", 1, "n", 1.0, 2.0, 0.25, "out", "err")),
    ("c#1", m.Outcome("j", 70_000, TaskStatus.FAILED, BLOB, "no\nway: ü", 3, "n", None, None, None)),
    ("c#1", m.Outcome("j", 2, TaskStatus.LOST, b"", LONG, 0, "", None, None, None)),
    ("c#1", m.Outcome("j", 3, TaskStatus.CANCELLED, b"", "it was cancelled", 0, "", None, None, None)),
    ("c#1", m.NotCancelled("j", 0)),
    ("c#1", m.JobEnded("j")),
    ("c#1", m.Retried("j", 0, 1)),
    ("c#1", m.Counted("j", {0: 1})),
    ("c#1", m.Using("j", 1, ("memory",))),
    ("c#1", m.Unused("j", "memory")),
    ("c#1", m.PlacedNow("j", 1, [0])),
    ("c#1", m.BlobLost("j", BLOB.hash)),
    ("c#1", m.AskResults("j", [9])),
    ("c#1", m.Draining()),
    ("c#1", m.HandedOver("j", ((0, 2), (5, 7)))),
    ("c#1", m.HandedOver("job 2", ())),
    ("c#1", m.AllHandedOver()),
    ("c#1", m.Leads(False)),
    ("c#1", m.Detached("j")),
    ("c#1", m.NotDetached("j", "why")),
    ("c#1", m.Attached(DETACHED)),
    ("c#1", m.NotAttached("j")),
]
TO_NODES: list[tuple[str, Any]] = [
    ("n", m.Reserve(5, "j", 1, "ann", 1.0, 0, "app", 3, 0, None, {"cpu": 1.0})),
    ("rack/n", m.Reserve(6, "j", 0, 'b"öb', 2.5, 1, "app", 1, 4, 0.5)),
    ("n", m.CancelReservations(5)),
    ("n", m.Common("j", 0, b"common")),
    ("n", m.Launch(9, "j", 1, 4, ATTEMPT, b"payload", ((0, 1),))),
    ("n", m.Launch(0, "j", 0, 0, 1, BLOB, (), 5)),
    ("n", m.LaunchNow("j", 1, 4, ATTEMPT, b"payload", "ann", 1.0, 0, "app", 0.5)),
    ("n", m.LaunchPlaced("j", 1, 4, ATTEMPT, b"payload", 3, "ann", 1.0, 0, "app", 60.0, {"cpu": 1.0}, ((0, 1),))),
    ("n", m.NoTask(9, 2)),
    ("n", m.CancelAttempt("j", ATTEMPT)),
    ("n", m.CancelAttempt("j", 1, True)),
    ("n", m.CancelAttempt("j", ATTEMPT, preempt=True)),
    ("n", m.ForgetJob("j")),
    ("n", m.Input("j", 0, b"result")),
    ("n", m.Claim("j", "ann", 1, 7, 2.0)),
    ("n", m.AskLength(3)),
    ("n", m.DrainingKnown()),
    ("n", m.LaunchPlaced("j", 1, 4, ATTEMPT, b"payload", 2, "ann", 1.0, 0, "app", 0.5)),
    ("n", m.Lead("flow", 2)),
    ("n", m.CancelAttempt("j", 1, preempt=True)),
    ("n", m.KeepData("ann", (BLOB.hash,))),
]
FROM_NODES: list[tuple[str, Any]] = [
    ("n", m.ReservationsRefused(5, 2, "full")),
    ("n", m.ReservationsRefused(5, 2, LONG, True)),
    ("n", m.GetTasks(9, 5, 3, {"cpu": 1.0})),
    ("n", m.Report("j", 4, ATTEMPT, TaskStatus.FINISHED, b"r", "", 1_700_000_000.123456, 0.000123, "out", "err")),
    ("n", m.Report("j", 4, 1, TaskStatus.FAILED, BLOB, "exit code 3", 1_700_000_000.5, 1e-7)),
    ("n", m.Report("j", 4, 1, TaskStatus.LOST, b"", LONG, None, None)),
    ("n", m.HandBack("j", ATTEMPT, "the link broke before it was sent", (BLOB.hash,))),
    ("n", m.HandBack("j", 1, LONG)),
    ("n", m.AttemptRuns("j", 1)),
    ("n", m.NodeChanged(m.NodeInfo(3, {}, {}, {}))),
    ("n", m.NodeState(m.DRAINING, "the operator said so")),
    ("n", m.Claimed("j", 1, [(0, 1)], True)),
    ("n", m.StartedHere("j", 1, [0])),
    ("n", m.Fenced("j", 4)),
    ("n", m.Idle(2)),
    ("n", m.QueueLength(3, 12)),
    ("n", m.Leading("flow", 2, "scheduler-1", True)),
    ("n", m.Inventory("flow", 2, [("ann", "j", 7)], True)),
    ("n", m.NodeLoad(2, 3, 1, 0, {"cpu": 2.0})),
    ("n", m.Occupied(2)),
    ("n", m.Preempted("j", ATTEMPT, 2.5)),
]


class Passed:
    """A core, all of whose jobs are of one client, and an outbox, that note what they are given."""

    def __init__(self, client: str = "c#1") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.jobs = defaultdict(lambda: SimpleNamespace(client=client), j=SimpleNamespace(client=client))

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **more: self.calls.append((name, *given, *more.items()))


async def play(path: Path, owner: str = "c#1") -> Passed:
    """Play the script past an audit log in this file; returns what has reached the core and the outbox."""
    numbers = itertools.count()

    def clock() -> float:
        return BEGIN_S + next(numbers) / 1024

    passed = Passed(owner)
    audited = AuditedCore(passed, clock)
    audited.of(passed)  # type: ignore[arg-type]
    audited.open(str(path), 1 << 40, "scheduler-1", "127.0.0.1:4711")
    audited.node_up("n", m.NodeInfo(4, {"cpu": 4.0}, {"zone": "eu"}, {"app": ""}, "127.0.0.1:1"), clock())
    for client, user, message in FROM_CLIENTS:
        audited.receive_from_client(client, user, message, clock())
    for node, message in TO_NODES:
        audited.to_node(node, message)
    for node, message in FROM_NODES:
        audited.receive_from_node(node, message, clock())
    for client, message in TO_CLIENTS:
        audited.to_client(client, message)
    audited.cancel_job("j", clock())
    audited.cancel_job("j", clock(), running=True)
    audited.node_down("n", clock())
    await audited.close()
    return passed


async def test_lines_are_as_recorded(tmp_path: Path) -> None:
    await play(tmp_path / "lines")
    assert (tmp_path / "lines").read_bytes().splitlines() == RECORDED.read_bytes().splitlines()


async def test_all_reaches_the_core_and_the_outbox(tmp_path: Path) -> None:
    passed = await play(tmp_path / "lines")
    messages = [call[-2] if call[0].startswith("receive") else call[-1] for call in passed.calls]
    scripted = [message for entries in (FROM_CLIENTS, TO_NODES, FROM_NODES, TO_CLIENTS) for *_, message in entries]
    assert [message for message in messages if isinstance(message, m.Message)] == scripted


async def test_what_a_client_says_of_a_job_that_is_not_its_own_leaves_no_line(tmp_path: Path) -> None:
    await play(tmp_path / "own")
    await play(tmp_path / "others", owner="c#2")
    own, others = ((tmp_path / name).read_bytes().splitlines() for name in ("own", "others"))
    assert sum(b'"job_arrived"' in line for line in others) == sum(b'"job_arrived"' in line for line in own)
    missing = [json.loads(line)["event"] for line in own if line not in others]
    operators = 2
    assert sum(b'"cancel_asked"' in line for line in others) == operators
    assert {"cancel_asked", "task_finished_elsewhere"} == set(missing)


@pytest.mark.parametrize(
    ("script", "union"),
    [(FROM_CLIENTS, m.FromClient), (TO_CLIENTS, m.ToClient), (TO_NODES, m.ToNode), (FROM_NODES, m.FromNode)],
)
def test_the_script_has_every_message(script: Any, union: Any) -> None:
    assert {type(message) for *_, message in script} == set(get_args(union)) - set(TAKEN)


def write() -> None:
    """Record the lines of today."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(play(Path(directory) / "lines"))
        RECORDED.write_bytes((Path(directory) / "lines").read_bytes())


if __name__ == "__main__":
    write()
