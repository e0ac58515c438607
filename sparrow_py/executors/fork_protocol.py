"""How a node monitor and a fork server talk: frames as of `executor_protocol`, in msgpack, over a pair of sockets."""

from __future__ import annotations

import msgspec

from sparrow_py.executors.executor_protocol import Direction, ExecutorMessage


class Fork(ExecutorMessage, tag=1):
    """Start an executor: a copy of the server with these variables in its environment. Answer: Forked or NotForked."""

    executor: str
    environment: dict[str, str]


class Preload(ExecutorMessage, tag=5):
    """Import these modules, as far as they can be: executors that are forked from now on have them. No answer."""

    modules: list[str]


class Forked(ExecutorMessage, tag=2):
    """The executor was started, and has this process id until Ended."""

    executor: str
    pid: int


class NotForked(ExecutorMessage, tag=3):
    """The executor could not be started. `error`: the operating system's error number."""

    executor: str
    error: int


class Ended(ExecutorMessage, tag=4):
    """The executor has ended, and so has its process group. `code`: the exit code, or a signal's negative number."""

    executor: str
    code: int


FromServer = Forked | NotForked | Ended
FROM_FORK_SERVER = Direction(
    msgspec.msgpack.Decoder(list[FromServer]).decode, msgspec.json.Decoder(list[FromServer]).decode
)
ToServer = Fork | Preload
TO_FORK_SERVER = Direction(msgspec.msgpack.Decoder(list[ToServer]).decode, msgspec.json.Decoder(list[ToServer]).decode)
