"""Reading audit logs: launches and their asks, no-ops and cancellations with their counts and users."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.audit import Audit, read_audit_logs
from sparrow_py.errors import ClusterError

ARRIVED = {"event": "job_arrived", "at_s": 1.0, "job": "j", "user": "ann", "name": "", "tasks": [2]}


def reserved(at_s: float, node: str, count: int, ticket: int = 1, user: str = "ann") -> dict[str, Any]:
    return {"event": "reserved", "at_s": at_s, "job": "j", "user": user, "node": node, "ticket": ticket, "count": count}


def get_task(at_s: float, node: str, ask: int, count: int, ticket: int = 1) -> dict[str, Any]:
    return {"event": "get_task", "at_s": at_s, "node": node, "ask": ask, "ticket": ticket, "count": count}


def launched(at_s: float, node: str, ask: int, task: int, attempt: int = 1) -> dict[str, Any]:
    return {
        "event": "launched", "at_s": at_s, "job": "j", "stage": 0, "task": task, "attempt": attempt, "node": node,
        "ask": ask,
    }  # fmt: skip


def no_op(at_s: float, node: str, ask: int, count: int) -> dict[str, Any]:
    return {"event": "no_op", "at_s": at_s, "node": node, "ask": ask, "count": count}


def cancelled(at_s: float, node: str, ticket: int = 1) -> dict[str, Any]:
    return {"event": "reservations_cancelled", "at_s": at_s, "node": node, "ticket": ticket}


def read(tmp_path: Path, **logs: list[dict[str, Any]]) -> Audit:
    paths = {}
    for name, lines in logs.items():
        paths[name] = tmp_path / name
        paths[name].write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_audit_logs(paths)


def test_a_launch_has_the_time_of_its_ask(tmp_path: Path) -> None:
    audit = read(tmp_path, s=[ARRIVED, reserved(1.0, "a", 2), get_task(1.1, "a", 7, 2), launched(1.2, "a", 7, 1)])
    launch = audit.launches["j", 1]
    assert (launch.scheduler, launch.asked_s, launch.launched_s) == ("s", 1.1, 1.2)
    assert audit.arrived_s == {"j": 1.0}


def test_a_task_that_was_pushed_has_no_ask(tmp_path: Path) -> None:
    audit = read(tmp_path, s=[ARRIVED, launched(1.2, "a", 0, 0)])
    assert audit.launches["j", 0].asked_s is None


@pytest.mark.parametrize("event", ["pushed", "placed"])
def test_tasks_for_which_nobody_asked_are_starts_too(tmp_path: Path, event: str) -> None:
    line = {**launched(1.2, "a", 0, 0), "event": event}
    del line["ask"]
    found = read(tmp_path, s=[ARRIVED, line]).launches["j", 0]
    assert (found.launched_s, found.asked_s) == (1.2, None)


def test_the_last_of_several_starts_counts_at_whichever_scheduler(tmp_path: Path) -> None:
    later = [get_task(2.0, "b", 7, 1), launched(2.1, "b", 7, 0, attempt=2)]
    earlier = [get_task(1.0, "a", 7, 1), launched(1.1, "a", 7, 0)]
    for logs in ({"s1": later, "s2": earlier}, {"s1": earlier, "s2": later}):
        assert read(tmp_path, **logs).launches["j", 0].launched_s == 2.1


def test_no_ops_have_the_user_of_the_ticket(tmp_path: Path) -> None:
    lines = [reserved(1.0, "a", 4, ticket=2, user="bob"), get_task(1.1, "a", 7, 3, ticket=2), no_op(1.2, "a", 7, 2)]
    assert read(tmp_path, s=lines).events == [(1.2, "noop", 2, "bob")]


def test_a_cancellation_counts_the_reservations_that_the_node_still_had(tmp_path: Path) -> None:
    """Of five reservations two were used by getTasks and one was refused."""
    refused = {"event": "reservations_refused", "at_s": 1.1, "node": "a", "ticket": 1, "count": 1, "reason": "full"}
    lines = [
        reserved(1.0, "a", 4), reserved(1.05, "a", 1), refused, get_task(1.1, "a", 7, 2), cancelled(1.3, "a"),
        cancelled(1.4, "a"), reserved(1.0, "b", 2), get_task(1.1, "b", 1, 2), cancelled(1.5, "b"),
    ]  # fmt: skip
    assert read(tmp_path, s=lines).events == [(1.3, "cancelled", 2, "ann")]


def test_reservations_of_a_node_that_is_gone_are_not_cancelled(tmp_path: Path) -> None:
    lines = [reserved(1.0, "a", 4), {"event": "node_down", "at_s": 1.1, "node": "a"}, cancelled(1.2, "a")]
    assert read(tmp_path, s=lines).events == []


def test_events_of_all_schedulers_are_in_order(tmp_path: Path) -> None:
    logs = {
        name: [reserved(at_s, "a", 1), cancelled(at_s + 0.5, "a")] for name, at_s in (("s1", 3.0), ("s2", 1.0))
    }  # The same ticket's number, of another scheduler.
    assert [event[0] for event in read(tmp_path, **logs).events] == [1.5, 3.5]


def test_missing_lines_are_counted(tmp_path: Path) -> None:
    audit = read(
        tmp_path, s=[{"event": "dropped", "at_s": 1.0, "lines": 3}, {"event": "dropped", "at_s": 2.0, "lines": 4}]
    )
    assert audit.dropped == 7


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    path.write_text('{"event": "started", "at_s": 1}\n{"event": \n')
    with pytest.raises(ClusterError, match=r"audit:2:\d+: no line"):
        read_audit_logs({"s": path})
    with pytest.raises(ClusterError, match="missing"):
        read_audit_logs({"s": tmp_path / "missing"})
