"""Lines of the audit log: their fields are documented, and they stay short."""

import re
from pathlib import Path

import msgspec
import pytest

from scheduler.audit.lines import LINES, Line
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m

DOCUMENT = Path(__file__).parents[3] / "docs/audit-log.md"


def test_every_event_and_its_fields_are_documented() -> None:
    documented = {}
    _heading, *rows = re.findall(r"^\| (`.*)\|$", DOCUMENT.read_text(), re.M)
    for row in rows:
        events, *_, fields = row.split("|")
        documented[tuple(re.findall(r"`(\w+)`", events))] = set(re.findall(r"`(\w+)`", fields))
    written: dict[str | int | None, set[str]] = {}
    for kind in Line.__subclasses__():
        fields = {field.name for field in msgspec.structs.fields(kind)} - {"at_s"}
        written.setdefault(kind.__struct_config__.tag, set()).update(fields)
    assert {event for events in documented for event in events} == set(written)
    for events, fields in documented.items():
        assert set().union(*(written[event] for event in events)) == fields


@pytest.mark.parametrize("message", [m.ReservationsRefused(1, 1, "x" * 900_000), m.HandBack("j", 1, "x" * 900_000)])
def test_reasons_of_nodes_are_cut(message: m.Message) -> None:
    line = msgspec.structs.asdict(LINES[type(message)]("a", message, 0.0))
    assert len(line["reason"]) == m.WITHDRAWN_CHARS_MAX


LONG = "x" * 900_000


@pytest.mark.parametrize(
    "message",
    [
        m.Outcome("j", 0, TaskStatus.FAILED, b"", LONG, 1, "a", None, None, None),
        m.Report("j", 0, 1, TaskStatus.FAILED, b"", LONG, 5.0, 0.25),
    ],
)
def test_long_errors_lose_their_middle(message: m.Message) -> None:
    line = msgspec.structs.asdict(LINES[type(message)]("a", message, 0.0))
    assert len(line["error"]) == m.WITHDRAWN_CHARS_MAX


def test_a_job_that_arrives_takes_a_short_line_whatever_it_says_of_itself() -> None:
    stages = [m.Stage("app", 1, b"", "", 2.0, 0, 0.5, {})] * 50_000
    job = m.SubmitJob(LONG, 0, LONG, stages, 3, False, None, False)
    for message in (job, m.JobRefused("j", LONG)):
        assert len(msgspec.json.encode(LINES[type(message)]("ann", message, 0.0))) < 5000
