"""Every error of sparrow-py, as one tree (and `InvariantViolated`, which is a bug of ours).

    SparrowError
    ├── InvalidRequest        the caller's fault: a field, the value it had, what is allowed
    │   └── InvalidOption     the same, for a daemon's or client's option
    ├── Refused               the cluster will not take the job now or ever; says when to try again
    ├── NoScheduler           no scheduler could be reached
    ├── JobDetached           the client has let go of the job, and whoever attaches to it has its results
    ├── LinkError             the other side of a link broke the protocol or went away
    │   ├── LinkRefused       it answered and will have no link: wrong token, another protocol version, full
    │   └── AccessDenied      who asks may not do what it asks for
    ├── NotInTask             what only a task of the Python app can do was asked for elsewhere
    ├── WaitRefused           a task may not wait for tasks of its own, as too many do
    ├── ActorLost             an actor has ended, or was lost with the call that it had
    ├── ClusterError          an embedded cluster did not start or stop as it should
    └── TaskError             a task did not finish
        ├── TaskFailed        the task ran and failed, and its own exception could not be shown
        ├── TaskLost          its node, executor or scheduler went away too often, or no place was found
        ├── TaskCancelled     it was cancelled
        └── ResultLost        it finished, but its large result is gone: its node went away or its lease ran out

A task's own exception (a Python function's) is raised as itself, with its attributes, notes, cause and context. The
worker's traceback (`RemoteTraceback`) is its cause, or, if it was raised `from` another, the cause of the first of its
causes. Attributes that cannot be pickled are left behind; an exception that cannot be is a `RuntimeError` that says so.
"""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

VALUE_SHOWN_MAX = 80
"""Characters of an offending value that an error message repeats."""
END_SHOWN = 30
"""Of these at its end."""


def shown(value: object) -> str:
    """`value` as an error message repeats it: its repr, of which `VALUE_SHOWN_MAX` characters at most are left.

    What is too long loses its middle: of a path the end says most.
    """
    text = repr(value)
    if len(text) <= VALUE_SHOWN_MAX:
        return text
    return f"{text[: VALUE_SHOWN_MAX - END_SHOWN]}…{text[-END_SHOWN:]} ({len(text)} characters)"


class SparrowError(Exception):
    """What all errors of this library derive from; a task's own exception is raised as itself."""


class InvalidRequest(SparrowError, ValueError):
    """A request has a field with a value that is not allowed. Nothing has been submitted.

    field: its name, with the way to it: `stages[1].tasks`.
    value: what it had; None where a scheduler has found it.
    allowed: what it may have, in words; empty where a scheduler has found it.
    message: the text of the error; if empty, one that has these three.
    """

    def __init__(self, field: str, value: object, allowed: str, message: str = "") -> None:
        super().__init__(message or f"{field}: {shown(value)} is not valid; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed

    @classmethod
    def told(cls, field: str, message: str) -> InvalidRequest:
        """The error that a scheduler found and put into words."""
        return cls(field, None, "", message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.allowed, str(self))


class InvalidOption(InvalidRequest):
    """An option of a daemon or of the client has a value that is not allowed."""


class Refused(SparrowError):
    """A job was not accepted: nothing of it ran.

    reason: why, in words.
    retry_after_s: after so many seconds it may be accepted; None where trying again cannot help.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        hint = "" if retry_after_s is None else f" (try again in {retry_after_s:.1f} s)"
        super().__init__(reason + hint)
        self.reason = reason
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.retry_after_s)


class NoScheduler(SparrowError, ConnectionError):
    """No scheduler answered within the time allowed."""


class JobDetached(SparrowError):
    """The client has let go of the job (`Client.detach`): its outcomes are for whoever attaches to it."""


class LinkError(SparrowError, ConnectionError):
    """The other side of a link sent what the protocol does not allow, or the link broke."""


class LinkRefused(LinkError):
    """The scheduler that was dialled answered, and will have no link: the token, the protocol's version, a limit.

    `is_denied`: it is the token or the certificate, so that no dial with the same ones can do better.
    """

    def __init__(self, reason: str, *, is_denied: bool = False) -> None:
        super().__init__(reason)
        self.is_denied = is_denied


class AccessDenied(LinkError):
    """Who asks did not prove who it is, or may not do what it asks for."""


class ClusterError(SparrowError, RuntimeError):
    """A daemon of an embedded cluster did not start, or ended when it should not have."""


class NotInTask(SparrowError, RuntimeError):
    """`Client.current` was called outside of a task of the Python app, which alone has a client of its own."""


class WaitRefused(SparrowError):
    """A task may not wait for tasks of its own, as `waiting_tasks_max` others of its node do already."""


class ActorLost(SparrowError):
    """An actor has ended, or was lost while it had the call.

    actor: its name.
    node: the id of the one on which that was; empty if nobody knows.
    reason: why.
    """

    def __init__(self, actor: str, node: str, reason: str) -> None:
        super().__init__(f"{actor}{f' on {node}' if node else ''}: {reason}")
        self.actor = actor
        self.node = node
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.actor, self.node, self.reason)


class TaskError(SparrowError):
    """A task did not finish; the message says why. Raised where its result is asked for."""


class TaskFailed(TaskError):
    """A task ran and failed. Raised when the task's own exception cannot be raised itself.

    `result` holds what the executor returned all the same: a command's output, for instance.
    """

    result: bytes = b""


class TaskLost(TaskError):
    """A task was started `max_attempts` times without its outcome becoming known, or found no place."""


class TaskCancelled(TaskError, CancelledError):
    """A task was cancelled before it finished."""


class ResultLost(TaskError):
    """A task finished, but its large result is gone: its node went away or its lease ran out."""


class RemoteTraceback(Exception):
    """The traceback of the worker, as the cause of the exception that is raised at the client.

    text: the traceback, as Python prints it.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text


class InvariantViolated(AssertionError):
    """A pure core found itself in a state that must not be; carries the recent history."""

    def __init__(self, problem: str, story: list[str]) -> None:
        super().__init__("\n".join([problem, "what happened before:", *story]))
        self.problem = problem
