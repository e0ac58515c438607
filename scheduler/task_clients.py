"""Clients within tasks (nested tasks): their frames come and go within the links of the nodes that run the tasks.

A node relays what a task's client says as long as the task's attempt is open there (`TaskSays`), and says when the
client is gone (`TaskGone`). So such a client needs no secret: it has the user and the rights of its task's job. The
core knows it as any other client, but for the depth of its jobs, and that they are cancelled when it is gone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from sparrow_py.errors import AccessDenied, InvalidRequest, LinkError
from sparrow_py.limits.shares import Shares
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.wire import messages as m
from sparrow_py.wire.handshake import common_version
from sparrow_py.wire.links import REASON_CHARS_MAX

log = logging.getLogger("sparrow.scheduler")
MESSAGES_PER_TURN_MAX = 32
"""Of all clients within tasks, before links have their turn: a job may take a third of a millisecond. Links are read
beside them, and have more."""
SEATS_PER_CLIENT = 4
"""Clients within tasks, for each that may be connected otherwise (`clients_max`): they open no files."""
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


class _Frames:
    """What a client has said that was not looked at yet."""

    def __init__(self, node: NodeLink, user: str) -> None:
        self.node = node
        self.user = user
        """Whose turn it is when they are looked at; empty if it is nobody's client."""
        self.frames: deque[bytes] = deque()
        self.messages: deque[Any] = deque()
        """What is left of the frame that is being looked at."""
        self.gone = False
        """Whether the client is gone once these have been looked at."""


class TaskClients:
    """Those of a scheduler. Their messages are looked at in turns, a user's after another's, and of a user's clients
    one after the other.

    clients: all of its clients' links by name, these included. names: new numbers of clients. welcome: what is said to
    one that is let in. receive: takes a message of a client. later: has `turn` called in the loop's next turn. seats:
    how many there may be, and of one user.
    """

    def __init__(
        self,
        core: Core,
        clients: dict[str, Any],
        numbers: Iterator[int],
        welcome: Callable[[], m.Welcome],
        receive: Callable[[str, str, Any, float], None],
        later: Callable[[], object],
        seats: Shares,
    ) -> None:
        self._core = core
        self._clients = clients
        self._numbers = numbers
        self._welcome = welcome
        self._receive = receive
        self._later = later
        self._seats = seats
        self._sparing = SparingLog(log)
        """For what tasks can bring about as often as they like."""
        self._by_key: dict[Key, _TaskClient] = {}
        self._over: set[Key] = set()
        """Clients of which nothing more is looked at, until their nodes say that they are gone."""
        self._frames: dict[Key, _Frames] = {}
        """Of clients that have said something."""
        self._turns: dict[str, dict[Key, None]] = {}
        """These clients by user: whose turn it is next first, in both."""
        self._left = MESSAGES_PER_TURN_MAX
        """How many messages are still looked at in this turn of the loop."""
        self._turn_due = False

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def waiting(self) -> int:
        """How many clients have said something that was not looked at yet."""
        return len(self._frames)

    def said(self, node_id: str, node: NodeLink, message: m.TaskSays, now_s: float) -> None:
        """A node has relayed a frame. What is wrong with it ends this client, and not the node's link."""
        key = (node_id, message.job, message.attempt, message.client)
        if key in self._over:
            node.send(m.TaskHeard(message.client, 1))
            return
        frames = self._frames.get(key)
        if frames is None:
            frames = _Frames(node, self._user_of(key))
            self._line_up(key, frames)
        frames.frames.append(message.frame)
        self._work(now_s)

    def gone(self, node_id: str, message: m.TaskGone, now_s: float) -> None:
        """A node says that a client is gone. What it said before counts."""
        key = (node_id, message.job, message.attempt, message.client)
        self._over.discard(key)
        frames = self._frames.get(key)
        if frames is None:
            self._end(key, now_s)
        else:
            frames.gone = True

    def node_gone(self, node_id: str, now_s: float) -> None:
        """The link to a node is gone: whatever runs there, its tasks' clients cannot be heard any more."""
        self._over = {key for key in self._over if key[0] != node_id}
        for key in [key for key in self._frames if key[0] == node_id]:
            self._take_turn(key)
        for key in [key for key in self._by_key if key[0] == node_id]:
            self._end(key, now_s)

    # ---- turns -------------------------------------------------------------------------------

    def turn(self, now_s: float) -> None:
        """Others have had their turn: go on."""
        self._turn_due = False
        self._left = MESSAGES_PER_TURN_MAX
        self._work(now_s)

    def _work(self, now_s: float) -> None:
        """Look at what was said, as much as this turn of the loop allows."""
        while self._frames and self._left > 0:
            self._left -= 1
            self._look_at_next(now_s)
        if not self._turn_due and self._left < MESSAGES_PER_TURN_MAX:
            self._turn_due = True
            self._later()

    def _look_at_next(self, now_s: float) -> None:
        """Look at a message of the client whose turn it is."""
        key = next(iter(next(iter(self._turns.values()))))
        frames = self._take_turn(key)
        try:
            is_over = self._look_at(key, frames, now_s)
        except (LinkError, InvalidRequest) as error:
            self._cut_off(key, frames.node, str(error), is_denied=isinstance(error, AccessDenied))
            is_over = True
        except Exception:  # A bug of ours: it must not reach the node's link, nor other clients.
            log.exception("a client in attempt %d of job %s failed", key[2], key[1])
            self._cut_off(key, frames.node, "internal error", is_denied=False)
            is_over = True
        if is_over:
            self._drop(key, frames, now_s)
            return
        if not frames.messages:
            frames.frames.popleft()
            frames.node.send(m.TaskHeard(key[3], 1))
        if frames.frames:
            self._line_up(key, frames)
        elif frames.gone:
            self._end(key, now_s)

    def _line_up(self, key: Key, frames: _Frames) -> None:
        """It is this client's turn after those of its user's others, and its user's after other users'."""
        self._frames[key] = frames
        self._turns.setdefault(frames.user, {})[key] = None

    def _take_turn(self, key: Key) -> _Frames:
        """Take a client out of the line, and put its user's others behind other users'."""
        frames = self._frames.pop(key)
        others = self._turns.pop(frames.user)
        del others[key]
        if others:
            self._turns[frames.user] = others
        return frames

    def _user_of(self, key: Key) -> str:
        """Of a client that is known, or is to be let in."""
        known = self._by_key.get(key)
        if known is not None:
            return known.user
        try:
            return self._core.depth_in_task(*key[:3])[0]
        except (LinkError, InvalidRequest):
            return ""  # It is refused when its turn comes.

    def _look_at(self, key: Key, frames: _Frames, now_s: float) -> bool:
        """Look at the client's next message; whether it was the last."""
        known = self._by_key.get(key)
        if known is None:
            self._let_in(key, frames.node, frames.frames[0])
            return False
        if not frames.messages:
            frames.messages.extend(_decode(frames.frames[0]))
        if frames.messages:
            one = frames.messages.popleft()
            if isinstance(one, m.Goodbye):
                return True
            if not isinstance(one, m.Renew):
                self._receive(known.name, known.user, one, now_s)
        return False

    def _cut_off(self, key: Key, node: NodeLink, reason: str, *, is_denied: bool) -> None:
        known = self._by_key.get(key)
        link = TaskLink(key, node) if known is None else known.link
        self._sparing.info("%s is cut off: %s", link.peer, reason)
        link.close(reason, is_denied=is_denied)

    def _drop(self, key: Key, frames: _Frames, now_s: float) -> None:
        """Nothing more of this client is looked at."""
        if not frames.gone:
            self._over.add(key)
        frames.node.send(m.TaskHeard(key[3], len(frames.frames), is_over=True))
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
        if why_not := self._seats.why_not(user):
            raise LinkError(why_not)
        client = f"{user}#{next(self._numbers)} in {job}"
        link = TaskLink(key, node)
        self._seats.take(user)
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
            self._seats.give_back(known.user)
            self._core.client_down(known.name, now_s)
