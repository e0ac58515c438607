"""What a sql executor is asked to do: the payloads of tasks, as msgpack."""

from __future__ import annotations

import msgspec

from sparrow_py.errors import InvalidRequest

APP = "sql"


class Load(msgspec.Struct, tag="load", forbid_unknown_fields=True):
    """Hold these partitions of the dataset in this directory. The result is a JSON map: the dataset's key to the
    number of its partitions that are held then."""

    directory: str
    partitions: list[int]


class Drop(msgspec.Struct, tag="drop", forbid_unknown_fields=True):
    """Hold nothing of this dataset any more."""

    dataset: str


class Input(msgspec.Struct, forbid_unknown_fields=True):
    """The next `results` of the task's inputs are a table of this name; of each, one bucket or (None) all."""

    table: str
    results: int
    bucket: int | None = None


class Fragment(msgspec.Struct, tag="run", forbid_unknown_fields=True):
    """Run this SQL over a partition, or the tables that are held whole, or neither, and over inputs.

    directory: of the dataset, to load what is not held yet; empty if no table is read. buckets: the number of parts
    into which the result is cut. last: whether the result is the query's, which goes to the client.
    """

    sql: str
    directory: str = ""
    partition: int | None = None
    inputs: list[Input] = []
    buckets: int = 1
    last: bool = False


Task = Load | Drop | Fragment
_decoder = msgspec.msgpack.Decoder(Task)


def encode_task(task: Task) -> bytes:
    """The payload of this task."""
    return msgspec.msgpack.encode(task)


def decode_task(payload: bytes) -> Task:
    """The task of this payload; `InvalidRequest` if it is not one."""
    try:
        task: Task = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("payload", payload, f"a task of the app {APP} in msgpack ({error})") from None
    return task
