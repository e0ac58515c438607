"""The lines of the audit log, which are made of the messages themselves.

`LINES` says for each type of message which event its line tells of, and which of the message's fields the line has.
Payloads, results and output are in no line. docs/audit-log.md says what events and fields mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sparrow_py.job import NAME_BYTES_MAX
from sparrow_py.profiles import DEFAULT
from sparrow_py.wire import messages as m

STAGES_SHOWN_MAX = 1000
"""Of a job that arrives."""


class Line(msgspec.Struct, tag_field="event", omit_defaults=True, gc=False):
    """at_s: seconds since the epoch, by the scheduler's clock."""

    at_s: float


class Started(Line, tag="started"):
    """The scheduler has begun to work; with this profile, if not the default one."""

    scheduler: str
    address: str
    profile: str = DEFAULT


class Dropped(Line, tag="dropped"):
    """So many lines are missing here: the disk was too slow."""

    lines: int


class NodeDown(Line, tag="node_down"):
    """The link to a node monitor broke: what was queued there is gone."""

    node: str


LineOf = Callable[[str, Any, float], Line]
"""Makes a line of a message, its peer and the time. The peer is a node's id, or the user that a client is of."""


def _lines_of(
    message: type[msgspec.Struct],
    event: str,
    fields: str,
    *,
    peer: str = "node",
    unless: dict[str, Any] | None = None,
    **computed: Callable[[Any], Any],
) -> tuple[type[msgspec.Struct], LineOf]:
    """A type of message, and the function that makes its lines.

    fields: those of the line, in order; all are fields of the message but for the next two.
    peer: the name of the field that has the peer.
    unless: by field, the value with which it is left out of the line.
    computed: by field, the function of the message that makes its value.
    """
    names, defaults = fields.split(), unless or {}
    columns = [(name, Any, defaults[name]) if name in defaults else (name, Any) for name in names]
    new_line = msgspec.defstruct(event, columns, bases=(Line,), tag=event, gc=False)
    missing = set(names) - {peer, *computed, *message.__struct_fields__}
    assert not missing, f"{message} has no {missing}"
    values = [
        "peer" if name == peer else f"{name}(message)" if name in computed else f"message.{name}" for name in names
    ]
    # Compiled, as namedtuple does it: to pick the values in a loop makes a line cost half as much again.
    made = eval(f"lambda peer, message, at_s: new_line(at_s, {', '.join(values)})", {"new_line": new_line, **computed})
    return message, made


def _tasks_of_stages(job: m.SubmitJob) -> list[int]:
    return [stage.task_count for stage in job.stages[:STAGES_SHOWN_MAX]]


def _short_job(message: m.SubmitJob) -> str:
    """A job that is refused for its id may have a long one."""
    return message.job[:NAME_BYTES_MAX]


def _short_name(message: m.SubmitJob) -> str:
    return message.name[:NAME_BYTES_MAX]


def _unstarted_tasks(message: m.HandedOver) -> int:
    return sum(count for _, count in message.unstarted)


def _job_of_attached(message: m.Attached) -> str:
    return message.submission.job


def _short_reason(message: m.ReservationsRefused | m.HandBack | m.JobRefused) -> str:
    """A node may give a reason as long as a frame, and one that names what a client has sent may be long, too."""
    return m.cut_reason(message.reason)


def _short_error(message: m.Outcome | m.Report) -> str:
    """So may a task: long errors would drive the lines of others out of the file."""
    return m.cut_reason(message.error)


LINES: dict[type[msgspec.Struct], LineOf] = dict(
    [
        _lines_of(m.NodeInfo, "node_up", "node slots"),
        # Jobs.
        _lines_of(
            m.SubmitJob, "job_arrived", "job user name tasks epoch", peer="user", unless={"epoch": 0},
            job=_short_job, name=_short_name, tasks=_tasks_of_stages,
        ),
        _lines_of(m.JobAccepted, "job_accepted", "job"),
        _lines_of(m.JobRefused, "job_refused", "job reason", reason=_short_reason),
        _lines_of(m.CancelJob, "cancel_asked", "job"),
        _lines_of(m.CancelTasks, "cancel_asked", "job tasks"),
        _lines_of(m.FinishedElsewhere, "task_finished_elsewhere", "job task"),
        _lines_of(
            m.Outcome, "task_ended", "job task status attempts error", unless={"error": ""},
            error=_short_error,
        ),
        _lines_of(m.JobEnded, "job_ended", "job"),
        _lines_of(m.Detached, "job_detached", "job"),
        _lines_of(m.Attached, "job_attached", "job", job=_job_of_attached),
        _lines_of(m.HandedOver, "job_handed_over", "job unstarted", unstarted=_unstarted_tasks),
        _lines_of(m.Fenced, "job_taken_over", "job node epoch"),
        # Reservations.
        _lines_of(m.Reserve, "reserved", "job user node ticket count"),
        _lines_of(m.ReservationsRefused, "reservations_refused", "node ticket count reason", reason=_short_reason),
        _lines_of(m.CancelReservations, "reservations_cancelled", "node ticket"),
        _lines_of(m.GetTasks, "get_task", "node ask ticket count"),
        _lines_of(m.NoTask, "no_op", "node ask count"),
        _lines_of(m.AskLength, "length_asked", "node probe"),
        _lines_of(m.QueueLength, "length_told", "node probe length"),
        # Starts of tasks.
        _lines_of(m.Launch, "launched", "job stage task attempt node ask"),
        _lines_of(m.LaunchNow, "pushed", "job stage task attempt node"),
        _lines_of(m.LaunchPlaced, "placed", "job stage task attempt node lead"),
        _lines_of(m.CancelAttempt, "attempt_cancelled", "job attempt node preempt", unless={"preempt": False}),
        _lines_of(m.HandBack, "handed_back", "job attempt node reason", reason=_short_reason),
        _lines_of(m.Preempted, "preempted", "job attempt node service_s"),
        _lines_of(
            m.Report, "finished", "job task attempt node status started_at_s service_s error", unless={"error": ""},
            error=_short_error,
        ),
    ]
)  # fmt: skip
"""By type of message. Messages of other types leave no line. (`NodeInfo` is part of a node monitor's `Hello`.)"""
