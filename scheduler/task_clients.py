"""Clients within tasks (nested tasks): their frames come and go within the links of the nodes that run the tasks.

A node relays what a task's client says as long as the task's attempt is open there (`TaskSays`), and says when the
client is gone (`TaskGone`). So such a client needs no secret: it has the user and the rights of its task's job. The
core knows it as any other client, but for the depth of its jobs, and that they are cancelled when it is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from sparrow_py.errors import AccessDenied, InvalidRequest, LinkError
from sparrow_py.wire import messages as m
from sparrow_py.wire.handshake import common_version
from sparrow_py.wire.links import REASON_CHARS_MAX

log = logging.getLogger("sparrow.scheduler")
Key = tuple[str, str, int, int]
"""(node id, job, attempt, number of the client)."""
_decode_hello = m.FrameDecoder(m.Hello)
_decode = m.FrameDecoder(m.FromClient)


class NodeLink(Protocol):
    """The link to a node."""

    peer: str

    def send(self, message: m.Message) -> None:
        """Queue a message."""


class Core(Protocol):
    """Of the scheduler's core what this needs."""

    def depth_in_task(self, node_id: str, job_id: str, attempt: int) -> tuple[str, int]:
        """See `SchedulerCore`."""

    def client_up(self, client: str, user: str, *, depth: int = 0) -> None:
        """See `SchedulerCore`."""

    def client_down(self, client: str, now_s: float, *, said_goodbye: bool = True) -> None:
        """See `SchedulerCore`."""


class TaskLink:
    """The way to a client within a task: a link within the node's link."""

    def __init__(self, key: Key, node: NodeLink) -> None:
        _, self._job, self._attempt, self._number = key
        self._node = node
        self.peer = f"a client in attempt {self._attempt} of job {self._job}"
        self.closing = False
        """Whether nothing more is sent."""

    def send(self, message: m.Message) -> None:
        """Send a message; `LinkError` if it is larger than a frame may be."""
        if not self.closing:
            frame = m.one_message_frame(message)
            self._node.send(m.TaskHears(self._job, self._attempt, self._number, frame))

    def close(self, reason: str, *, is_denied: bool = False) -> None:
        """Say Goodbye."""
        self.send(m.Goodbye(reason[:REASON_CHARS_MAX], is_denied))
        self.closing = True

    async def aclose(self, reason: str = "") -> None:
        """As `close`."""
        self.close(reason)


class _TaskClient(NamedTuple):
    """A client within a task, as the core knows it."""

    name: str
    user: str
    link: TaskLink


class TaskClients:
    """Those of a scheduler.

    clients: all of its clients' links by name, these included. names: new numbers of clients. welcome: what is said to
    one that is let in. receive: takes a message of a client.
    """

    def __init__(
        self,
        core: Core,
        clients: dict[str, Any],
        numbers: Iterator[int],
        welcome: Callable[[], m.Welcome],
        receive: Callable[[str, str, Any, float], None],
    ) -> None:
        self._core = core
        self._clients = clients
        self._numbers = numbers
        self._welcome = welcome
        self._receive = receive
        self._by_key: dict[Key, _TaskClient] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def said(self, node_id: str, node: NodeLink, message: m.TaskSays, now_s: float) -> None:
        """A node has relayed a frame. What is wrong with it ends this client, and not the node's link."""
        key = (node_id, message.job, message.attempt, message.client)
        known = self._by_key.get(key)
        try:
            if known is None:
                self._let_in(key, node, message.frame)
                return
            for one in _decode(message.frame):
                if isinstance(one, m.Goodbye):
                    self._end(key, now_s)
                    return
                if not isinstance(one, m.Renew):
                    self._receive(known.name, known.user, one, now_s)
        except (LinkError, InvalidRequest) as error:
            link = TaskLink(key, node) if known is None else known.link
            log.info("%s is cut off: %s", link.peer, error)
            link.close(str(error), is_denied=isinstance(error, AccessDenied))
            self._end(key, now_s)

    def gone(self, node_id: str, message: m.TaskGone, now_s: float) -> None:
        """A node says that a client is gone."""
        self._end((node_id, message.job, message.attempt, message.client), now_s)

    def node_gone(self, node_id: str, now_s: float) -> None:
        """The link to a node is gone: whatever runs there, its tasks' clients cannot be heard any more."""
        for key in [key for key in self._by_key if key[0] == node_id]:
            self._end(key, now_s)

    def _let_in(self, key: Key, node: NodeLink, frame: bytes) -> None:
        node_id, job, attempt, _ = key
        hellos = _decode_hello(frame)
        if len(hellos) != 1:
            raise LinkError(f"{len(hellos)} messages in the first frame; one is expected")
        hello = hellos[0]
        version = common_version(hello)
        if hello.role != "client":
            raise InvalidRequest("role", hello.role, "client, within a task")
        user, depth = self._core.depth_in_task(node_id, job, attempt)
        client = f"{user}#{next(self._numbers)} in {job}"
        link = TaskLink(key, node)
        self._by_key[key] = _TaskClient(client, user, link)
        self._clients[client] = link
        welcome = self._welcome()
        welcome.version, welcome.user = version, user
        link.send(welcome)
        self._core.client_up(client, user, depth=depth)

    def _end(self, key: Key, now_s: float) -> None:
        known = self._by_key.pop(key, None)
        if known is not None:
            known.link.closing = True
            del self._clients[known.name]
            self._core.client_down(known.name, now_s)
