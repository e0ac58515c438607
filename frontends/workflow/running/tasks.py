"""What the executor of the app `workflow` is asked to do, and what it answers: msgpack."""

from __future__ import annotations

import msgspec

from frontends.workflow.running.execution import Cause
from sparrow_py.errors import InvalidRequest, LinkError

APP = "workflow"
ATTRIBUTE_PREFIX = "workflow."
"""With an engine's name: the attribute of a node that has the engine; its value is the engine's version."""
WARM_ATTRIBUTE = "workflow_warm"
"""The attribute that names the engines with a warm process."""
SCRIPT_CHARS_MAX = 16 << 20
TASK_BYTES_MAX = 64 << 20
"""Of a task: a script, and names and paths beside it."""
THREADS_MAX = 4096


class Script(msgspec.Struct, tag="script", forbid_unknown_fields=True):
    """Run this script of an engine.

    inputs: {relation: path of its Parquet file}. outputs: {relation: where its file goes}; the directories are there.
    store, token: a directory with the file `token` that has this text; if the node does not see it, the store is not
    shared. threads: that the engine uses. memory_bytes_max: that its process may have; 0: no limit.
    """

    engine: str
    source: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    store: str
    token: str
    threads: int = 1
    memory_bytes_max: int = 0


class Probe(msgspec.Struct, tag="probe", forbid_unknown_fields=True):
    """Do nothing: once the executor runs, it tells the node's attributes."""


Task = Script | Probe


class MadeFile(msgspec.Struct, forbid_unknown_fields=True):
    """A relation's size, as its file says. bytes: of the file; column_bytes: in memory."""

    rows: int
    bytes: int
    column_bytes: dict[str, int]


class Made(msgspec.Struct, tag="made", forbid_unknown_fields=True):
    """A script's end. seconds: of `run`; start_s: until its process was warm; cold: whether that had to be started."""

    relations: dict[str, MadeFile]
    seconds: float
    start_s: float
    cpu_s: float
    memory_bytes: int
    cold: bool


class Failed(msgspec.Struct, tag="failed", forbid_unknown_fields=True):
    """Why a script did not come to its end. cause: that of `execution.Cause`."""

    cause: str
    reason: str
    details: str = ""


Answer = Made | Failed
_task_decoder = msgspec.msgpack.Decoder(Task)
_answer_decoder = msgspec.msgpack.Decoder(Answer)


def encode(message: Task | Answer) -> bytes:
    """The bytes of a task, or of its answer."""
    return msgspec.msgpack.encode(message)


def decode_task(payload: bytes) -> Task:
    """The task of this payload; `InvalidRequest` if it is not one."""
    try:
        task: Task = _task_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("payload", payload, f"a task of the app {APP} in msgpack ({error})") from None
    if isinstance(task, Script):
        if len(task.source) > SCRIPT_CHARS_MAX:
            raise InvalidRequest("source", f"{len(task.source):,} characters", f"at most {SCRIPT_CHARS_MAX:,}")
        if not 1 <= task.threads <= THREADS_MAX:
            raise InvalidRequest("threads", task.threads, f"a whole number from 1 to {THREADS_MAX}")
        if task.memory_bytes_max < 0:
            raise InvalidRequest("memory_bytes_max", task.memory_bytes_max, "a whole number from 0")
    return task


def decode_answer(content: bytes) -> Answer:
    """The answer of these bytes; `LinkError` if they are not one."""
    try:
        answer: Answer = _answer_decoder.decode(content)
        if isinstance(answer, Failed):
            Cause(answer.cause)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise LinkError(f"malformed answer of a workflow's job, {len(content)} bytes: {error}") from None
    return answer
