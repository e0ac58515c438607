"""Clients within tasks: what they say is relayed to the scheduler that has their task's attempt, and what it answers.

Such a client connects to the executors' socket, names the run that it is within (`TaskClientHello`), and is a link to
one scheduler from then on, within this node monitor's own link to that scheduler (`TaskSays`, `TaskHears`). It is
closed when the run ends, or when that link breaks; then the client connects again, waits here until a scheduler has
claimed the attempt, and has that one. So it needs no secret and no address, and the right to submit ends with the
attempt.

Large data do not pass through schedulers here either: the client hands over files, and gets files (`StoreData`,
`FetchData`), as executors do with results and inputs.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import ENDED, STOPPED, Attempt
from node_monitor.blobs.blob_store import BlobStore, NoRoom
from node_monitor.blobs.result_files import ResultDirectory
from node_monitor.frames_ahead import FramesAhead
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.wire import messages as m
from sparrow_py.wire.blobs import WrongBytes
from sparrow_py.wire.links import REASON_CHARS_MAX, Link
from sparrow_py.wire.local_pair import LocalEnd

log = logging.getLogger("sparrow.node_monitor")
CLIENTS_MAX = 8
"""Clients that one task may have at a time."""
FETCHES_MAX = 64
"""Large data that one such client may wait for at a time."""
ADDRESSES_MAX = 64
"""Addresses of nodes that are to have what it wants."""
ADDRESS_CHARS_MAX = 256
"""Of each of them. Both as a scheduler takes them from clients."""
HELLO_BYTES_MAX = 1 << 16
"""The first frame of a client that has no scheduler yet, which is kept."""
SLOW_BYTES = 4 << 20
"""A client is read no further while so much waits for its scheduler."""
BACKLOG_BYTES_MAX = 64 << 20
"""If a task's clients have so much to read, and do not read, those are cut off that have more than an equal part."""


class Connection(Protocol):
    """A client's connection, by which it is known here."""

    def say(self, message: x.ExecutorMessage) -> None:
        """Send a message at once."""

    def take_frames(self, bytes_max: int) -> None:
        """From now on a frame from the client has so many bytes at most."""

    def unread_bytes(self) -> int:
        """What waits for the client to be read."""

    def end(self) -> None:
        """Close it once the client has read what it was told; at once if that is much, and soon in any case."""


class TaskClient:
    """A client within a task."""

    def __init__(self, number: int, attempt: Attempt, scheduler: str, connection: Connection) -> None:
        self.number = number
        self.attempt = attempt
        self.job, self.id = attempt.job.id, attempt.number
        """Of the attempt, as the scheduler knows it."""
        self.scheduler = scheduler
        self.connection = connection
        self.wanted: list[tuple[str, int]] = []
        """Hashes and sizes of the large data that it waits for."""
        self.open = True
        self.waits = False
        """Whether it has no scheduler until one claims the attempt."""
        self.hello = b""
        """Its first frame, while it waits."""

    @property
    def user(self) -> str:
        """Whose task it is within."""
        return self.attempt.job.owner[0]


class TaskRelay:
    """The clients within one node's tasks.

    find: the attempt of a run of an executor; None if it does not have it. book: says which attempts leave. links: to
    schedulers, by their names. bytes_max: the largest message that each of them takes.
    """

    def __init__(
        self,
        find: Callable[[str, int], Attempt | None],
        book: AttemptBook,
        links: Callable[[], Mapping[str, Link | LocalEnd]],
        store: BlobStore,
        bytes_max: Mapping[str, int],
    ) -> None:
        self._find = find
        self._book = book
        self._links = links
        self._store = store
        self._bytes_max = bytes_max
        self._numbers = itertools.count(1)
        self._clients: dict[int, TaskClient] = {}
        self._of_attempt: dict[Attempt, list[TaskClient]] = {}
        self._ahead = FramesAhead()
        self._sparing = SparingLog(log)

    def __len__(self) -> int:
        return len(self._clients)

    # ---- they come and go --------------------------------------------------------------------

    def come(self, executor: str, hello: x.TaskClientHello, connection: Connection) -> TaskClient | None:
        """A client within a run of this executor. None, and it has been told why, if it cannot be one now."""
        attempt = self._find(executor, hello.run)
        if attempt is None or attempt.state in (STOPPED, ENDED) or attempt.began_at_s is None:
            self._refuse(connection, f"run {hello.run} is over: its task has no client any more", is_denied=True)
            return None
        clients = self._of_attempt.setdefault(attempt, [])
        if len(clients) >= CLIENTS_MAX:
            self._refuse(connection, f"a task may have {CLIENTS_MAX} clients at a time", is_denied=True)
            return None
        scheduler = attempt.job.scheduler
        if why_not := self._why_not(scheduler):
            self._forget_empty(attempt)
            self._refuse(connection, why_not, is_denied=True)
            return None
        self._book.left, self._book.moved = self.attempt_left, self.attempt_moved
        client = TaskClient(next(self._numbers), attempt, scheduler, connection)
        self._link_to(client, scheduler)
        clients.append(client)
        self._clients[client.number] = client
        return client

    def _link_to(self, client: TaskClient, scheduler: str) -> None:
        """The client is this scheduler's, if that is linked, and may send frames as large as that takes. They are twice
        that in JSON, in which bytes take a third more."""
        client.scheduler, client.waits = scheduler, scheduler not in self._links()
        bytes_max = self._bytes_max.get(scheduler, m.FRAME_BYTES_MAX) + 2 * m.MESSAGE_OVERHEAD_BYTES
        client.connection.take_frames(2 * (HELLO_BYTES_MAX if client.waits else bytes_max))

    def _why_not(self, scheduler: str) -> str:
        """Why the scheduler, if it is linked, can have no clients within tasks."""
        link = self._links().get(scheduler)
        if link is None or link.version >= m.SINCE[m.TaskSays]:
            return ""
        return f"scheduler {scheduler}, which has the task, speaks version {link.version}, which knows no nested tasks"

    def _refuse(self, connection: Connection, reason: str, *, is_denied: bool) -> None:
        connection.say(x.ClientFrame(m.one_message_frame(m.Goodbye(reason[:REASON_CHARS_MAX], is_denied))))
        connection.end()

    def closed(self, client: TaskClient) -> None:
        """The client's connection is closed."""
        if not client.open:
            return
        self._forget(client)
        link = self._links().get(client.scheduler)
        if link is not None:
            link.send(m.TaskGone(client.job, client.id, client.number))

    def attempt_left(self, attempt: Attempt) -> None:
        """The attempt is here no more, and so are its task's clients."""
        for client in list(self._of_attempt.get(attempt, ())):
            self.closed(client)
            client.connection.end()

    def attempt_moved(self, attempt: Attempt) -> None:
        """A scheduler has claimed the attempt: its task's clients that wait for one have it."""
        scheduler = attempt.job.scheduler
        for client in [one for one in self._of_attempt.get(attempt, ()) if one.waits]:
            self._link_to(client, scheduler)
            if why_not := self._why_not(scheduler):
                self._forget(client)
                self._refuse(client.connection, why_not, is_denied=True)
            elif client.hello and not client.waits:
                hello, client.hello = client.hello, b""
                self._relay(client, hello)

    def scheduler_down(self, scheduler: str) -> None:
        """The link to a scheduler is gone: clients connect again, to whoever claims their attempts."""
        for client in [one for one in self._clients.values() if one.scheduler == scheduler and not one.waits]:
            self._forget(client)
            client.connection.end()
        self._ahead.scheduler_down(scheduler)

    def _forget(self, client: TaskClient) -> None:
        client.open = False
        del self._clients[client.number]
        self._of_attempt[client.attempt].remove(client)
        self._forget_empty(client.attempt)
        self._store.unpin(client)
        for hash_, size in set(client.wanted):
            self._store.give_up(hash_, size, client.user, client)
        self._ahead.look_again(client.scheduler, client.user)

    def _forget_empty(self, attempt: Attempt) -> None:
        if not self._of_attempt[attempt]:
            del self._of_attempt[attempt]
        if not self._of_attempt:
            self._book.left = self._book.moved = None

    # ---- what they say and hear --------------------------------------------------------------

    def said(
        self, client: TaskClient, messages: Sequence[object], directory: ResultDirectory
    ) -> Coroutine[Any, Any, None] | None:
        """The client has sent these; `LinkError` if it may not have. What takes a while is returned, to be awaited:
        nothing more is to be read of the client before."""
        left = deque(messages)
        wait = self._say(client, left, directory)
        return None if wait is None else self._said_later(client, wait, left, directory)

    def _say(
        self, client: TaskClient, left: deque[object], directory: ResultDirectory
    ) -> Coroutine[Any, Any, None] | None:
        """Take the client's messages as far as that takes no time; what is to be awaited before the rest is taken."""
        while left and client.open:
            message = left[0]
            if isinstance(message, x.ClientFrame):
                full = self._ahead.full(client.scheduler, client.user)
                if full is not None:
                    return full.changed()
                left.popleft()
                link = self._relay(client, message.data)
                if link is not None:
                    return link.drained()
                continue
            left.popleft()
            if isinstance(message, x.StoreData):
                return self._take(client, message, directory)
            if not isinstance(message, x.FetchData):
                raise LinkError(f"a client within a task sent a {type(message).__name__}")
            self._fetch(client, message)
        return None

    async def _said_later(
        self,
        client: TaskClient,
        wait: Coroutine[Any, Any, None] | None,
        left: deque[object],
        directory: ResultDirectory,
    ) -> None:
        while wait is not None:
            await wait
            wait = self._say(client, left, directory)

    def _relay(self, client: TaskClient, frame: bytes) -> Link | None:
        """Send it on; returns the link if much waits there."""
        if client.waits:
            if client.hello:
                raise LinkError("a client within a task sent more than its Hello before it was answered")
            if len(frame) > HELLO_BYTES_MAX:
                raise LinkError(f"a client within a task sent a Hello of {len(frame)} bytes; {HELLO_BYTES_MAX} may be")
            client.hello = frame
            return None
        link = self._links().get(client.scheduler)
        if link is None:
            return None  # The client is about to be closed.
        if isinstance(link, Link) and len(frame) > link.frame_bytes_max + m.MESSAGE_OVERHEAD_BYTES // 2:
            raise LinkError(f"a client within a task sent a frame of {len(frame)} bytes; {link.frame_bytes_max} may be")
        link.send(m.TaskSays(client.job, client.id, client.number, frame))
        self._ahead.sent(client.scheduler, client.user, client.number, len(frame))
        return link if isinstance(link, Link) and link.backlog_bytes > SLOW_BYTES else None

    def hears(self, scheduler: str, message: m.TaskHears) -> None:
        """A scheduler has a frame for a client."""
        client = self._clients.get(message.client)
        if client is None or client.scheduler != scheduler:
            return  # It is gone.
        self._tell(client, x.ClientFrame(message.frame))

    def _tell(self, client: TaskClient, message: x.ExecutorMessage) -> None:
        """Send the client a message, whoever it is from; one that does not read is cut off."""
        if self._reads(client):
            client.connection.say(message)
            return
        self._sparing.warning("a client within a task of user %s is cut off, as it does not read", client.user)
        self.closed(client)
        client.connection.end()

    def _reads(self, client: TaskClient) -> bool:
        """Whether a client, or its task's other ones, leave little unread."""
        if client.connection.unread_bytes() <= BACKLOG_BYTES_MAX // CLIENTS_MAX:
            return True
        unread = [one.connection.unread_bytes() for one in self._of_attempt[client.attempt]]
        return sum(unread) <= BACKLOG_BYTES_MAX

    def heard(self, scheduler: str, message: m.TaskHeard) -> None:
        """A scheduler has looked at what a client said, and perhaps looks at no more of it."""
        self._ahead.heard(scheduler, message.client, message.frames)
        client = self._clients.get(message.client)
        if message.is_over and client is not None and client.scheduler == scheduler:
            self.closed(client)
            client.connection.end()

    # ---- large data --------------------------------------------------------------------------

    async def _take(self, client: TaskClient, message: x.StoreData, directory: ResultDirectory) -> None:
        try:
            file = await self._store.take(directory, message.file, client, client.user)
        except (NoRoom, WrongBytes) as error:
            stored = x.DataStored(message.number, "", (), str(error))
        else:
            stored = x.DataStored(message.number, file.hash, (self._store.address,))
        if client.open:
            self._tell(client, stored)
        else:
            self._store.unpin(client)  # It has gone meanwhile.

    def _fetch(self, client: TaskClient, message: x.FetchData) -> None:
        if len(message.at) > ADDRESSES_MAX:
            raise LinkError(f"a client within a task names {len(message.at)} addresses; at most {ADDRESSES_MAX} may be")
        if (chars := max(map(len, message.at), default=0)) > ADDRESS_CHARS_MAX:
            raise LinkError(
                f"a client within a task names an address of {chars} characters; at most {ADDRESS_CHARS_MAX} may be"
            )
        if len(client.wanted) >= FETCHES_MAX:
            raise LinkError(f"a client within a task wants {FETCHES_MAX} large data at a time")
        wanted = message.hash, message.size
        client.wanted.append(wanted)

        def fetched(hash_: str, reason: str) -> None:
            client.wanted.remove(wanted)
            if client.open:
                self._tell(client, self._answer_with(client, message.number, hash_, reason))

        self._store.fetch(BlobRef(message.hash, message.size, message.at), fetched, client.user, client)

    def _answer_with(self, client: TaskClient, number: int, hash_: str, reason: str) -> x.DataFetched:
        """Of data that are here, if there is no reason why they are not: kept for the client, as far as its user has
        room."""
        if not reason and not self._store.pin(hash_, client, client.user):
            reason = self._store.why_not_kept(hash_, client.user)
        if reason:
            return x.DataFetched(number, None, str(reason))  # Which may be a `LackOfRoom`.
        return x.DataFetched(number, self._store.file_for(hash_, client.attempt.charge.ticket.app.partition("@")[2]))
