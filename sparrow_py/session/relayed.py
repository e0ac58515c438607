"""The session of a client within a task: its link to a scheduler is relayed by the node monitor that runs the task.

It connects to the executors' socket of its node, and names its run with the key that the executor was given for it
(`TaskClientHello`): no secret of the user's, no scheduler's address. The node monitor relays to the scheduler that has
the task's attempt; if that dies, the connection is closed, and the next one leads to the scheduler that has claimed the
attempt, as soon as it has. Large data go to the node monitor, and come from it, as files.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from sparrow_py.access.credentials import OPEN
from sparrow_py.cluster_nodes import NodeStatus
from sparrow_py.errors import InvalidRequest, LinkError, Refused, ResultLost, SparrowError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_files import read, store
from sparrow_py.job import BlobRef
from sparrow_py.session.session import SUBMIT_TIMEOUT_S, Session
from sparrow_py.task_context import RunningTask
from sparrow_py.tracing import in_task
from sparrow_py.wire import messages as m
from sparrow_py.wire.dialling import REDIAL_MIN_S, LinkUser
from sparrow_py.wire.handshake import HANDSHAKE_TIMEOUT_S
from sparrow_py.wire.outgoing import Outgoing

if TYPE_CHECKING:
    from sparrow_py.session.job_spans import JobSpans

log = logging.getLogger("sparrow.links")
READ_BYTES = 1 << 16
RECONNECT_MAX_S = 1.0
"""The longest pause before the next try to connect. It is a connection within one machine: many may be tried."""
LINK_PAUSE_S = 0.1
"""Between two tries to store or fetch large data, while no scheduler is linked."""
NO_LIST_OF_NODES = "a client within a task cannot list the nodes; ask with a client of the program that runs the job"
_decode_first = m.FrameDecoder(m.Welcome | m.Goodbye)
_decode = m.FrameDecoder(m.ToClient)


class RelayedLink:
    """A link to a scheduler, through the node monitor."""

    def __init__(self, writer: asyncio.StreamWriter, outgoing: Outgoing) -> None:
        self.loop = asyncio.get_running_loop()
        self.first = False
        self.peer = "the scheduler of this task"
        self.frame_bytes_max = m.FRAME_BYTES_MAX
        """What the scheduler takes, as soon as it has said so."""
        self._writer = writer
        self._outgoing = outgoing
        self._queued: list[x.ExecutorMessage] = []
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        """What the node monitor has yet to answer."""
        self._closed = False

    def send(self, message: m.Message) -> None:
        """Queue a message, which leaves with others of this event; `LinkError` if it is larger than a frame may be."""
        frame = m.one_message_frame(message)
        if len(frame) > self.frame_bytes_max + m.MESSAGE_OVERHEAD_BYTES // 2:
            raise LinkError(f"a message of {len(frame)} bytes does not fit a frame of {self.frame_bytes_max}")
        self._queue(x.ClientFrame(frame))

    def _queue(self, message: x.ExecutorMessage) -> None:
        if not self._closed:
            self._queued.append(message)
            self._outgoing.add(self)

    def flush_hurried(self) -> None:
        """Send what is queued."""
        if self._queued and not self._closed:
            queued, self._queued = self._queued, []
            self._writer.write(x.encode_frame(queued, bytes_max=self.frame_bytes_max + m.MESSAGE_OVERHEAD_BYTES))

    async def drained(self) -> None:
        """Wait until little is left to send."""
        self.flush_hurried()
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def ask(self, question: Callable[[int], x.ExecutorMessage]) -> Any:
        """The node monitor's answer to a question with this number; `LinkError` if the connection is lost before."""
        if self._closed:
            raise LinkError("the connection to the node monitor was lost")
        number = next(self._numbers)
        answer = self._asked[number] = self.loop.create_future()
        self._queue(question(number))
        try:
            return await answer
        finally:
            self._asked.pop(number, None)

    def answered(self, message: x.DataStored | x.DataFetched) -> None:
        """The node monitor has answered."""
        answer = self._asked.get(message.number)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def gone(self) -> None:
        """The connection is no more."""
        self._closed = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(LinkError("the connection to the node monitor was lost"))

    async def aclose(self, reason: str = "") -> None:
        """Say Goodbye, and close the connection."""
        if not self._closed:
            self.send(m.Goodbye(reason))
            self.flush_hurried()
            self._closed = True
            self._writer.close()


class Relaying:
    """Keeps a link to the scheduler of a task, as `Dialling` keeps those to all schedulers that it is given."""

    def __init__(
        self,
        task: RunningTask,
        hello: m.Hello,
        user: LinkUser,
        outgoing: Outgoing,
        *,
        all_dialled: Callable[[], None],
        denied: Callable[[], None],
        unreachable: Callable[[str], None],
        made: Callable[[socket.socket], None],
    ) -> None:
        """all_dialled: called once, when the node monitor has answered. denied: when it has said that there is no
        client for this task, nor will be. unreachable: told of a scheduler in whose place there is another, to which
        the task has gone. made: told of each socket."""
        self.links: dict[str, RelayedLink] = {}
        self.last_error = "the node monitor has not answered yet"
        self._path = task.socket_path
        self._run = task.run
        self._key = task.client_key
        self._hello = hello
        self._user = user
        self._outgoing = outgoing
        self._all_dialled = all_dialled
        self._denied = denied
        self._unreachable = unreachable
        self._made = made
        self._scheduler = ""
        """That which has the task, or had it when it was last heard of."""
        self._is_denied = False
        self._cut_off_at_s: float | None = None
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to connect."""
        self._keeping = asyncio.create_task(self._keep())

    def renew(self) -> None:
        """The token is another, which nobody asks for here."""

    def cut_off_s(self) -> float:
        """For how long no link has stood; 0 while one does, or if none ever did."""
        return 0.0 if self._cut_off_at_s is None else time.monotonic() - self._cut_off_at_s

    def is_denied(self) -> bool:
        """Whether there is no client for this task any more."""
        return self._is_denied and not self.links

    def why_cut_off(self) -> str:
        """Why no link stands."""
        return self.last_error

    async def stop(self, reason: str) -> None:
        """Close the link, and make none again."""
        for link in list(self.links.values()):
            await link.aclose(reason)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def _keep(self) -> None:
        pause_s = REDIAL_MIN_S
        while not self._is_denied:
            if await self._link():
                pause_s = REDIAL_MIN_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RECONNECT_MAX_S)

    async def _link(self) -> bool:
        """Connect, and serve the link until it is gone. Whether it stood."""
        try:
            reader, writer = await self._connected()
        except OSError as error:
            self.last_error = f"the node monitor cannot be reached: {error}"
            return False
        link = RelayedLink(writer, self._outgoing)
        hello = x.ClientFrame(m.one_message_frame(self._hello))
        writer.write(x.encode_frame([x.TaskClientHello(x.EXECUTOR_PROTOCOL_VERSION, self._run, self._key), hello]))
        name = ""
        try:
            splitter = x.FrameSplitter(x.TO_EXECUTOR)
            while data := await self._read(reader, waits=not name):
                name = self._heard(link, name, splitter.feed(data))
                if self._is_denied:
                    break
        except TimeoutError:
            self.last_error = "no scheduler has this task, as far as its node monitor knows, or none has answered"
        except (LinkError, InvalidRequest, OSError) as error:
            self.last_error = str(error)
        except Exception:  # A bug of ours, or of code of the user's that we called: it must not end the link for good.
            log.exception("the link through the node monitor failed")
        finally:
            link.gone()
            if name:
                del self.links[name]
                self._cut_off_at_s = time.monotonic()
                self._user.scheduler_down(name, self.last_error)
            writer.close()
        return bool(name)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        made = socket.socket(socket.AF_UNIX)
        self._made(made)
        try:
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, self._path)
            return await asyncio.open_unix_connection(sock=made)
        except BaseException:
            made.close()
            raise

    async def _read(self, reader: asyncio.StreamReader, *, waits: bool) -> bytes:
        if not waits:
            return await reader.read(READ_BYTES)
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            return await reader.read(READ_BYTES)

    def _heard(self, link: RelayedLink, name: str, messages: list[Any]) -> str:
        """These have come; returns the scheduler's name, if it has said it."""
        self._outgoing.begin()
        try:
            for message in messages:
                if isinstance(message, x.DataStored | x.DataFetched):
                    link.answered(message)
                elif not isinstance(message, x.ClientFrame):
                    raise LinkError(f"the node monitor sent a {type(message).__name__} to a client within a task")
                elif name:
                    self._said(name, _decode(message.data))
                else:
                    (first,) = _decode_first(message.data)
                    name = self._first(link, first)
                    if not name:
                        break
        finally:
            self._outgoing.end()
        return name

    def _first(self, link: RelayedLink, first: m.Welcome | m.Goodbye) -> str:
        """The scheduler, or the node monitor in its place, has answered."""
        if isinstance(first, m.Goodbye):
            self.last_error = first.reason
            if first.is_denied:
                self._is_denied = True
                self._denied()
                return ""
            raise LinkError(first.reason)  # The node monitor does not close the connection if a scheduler says so.
        self.last_error = "the connection was closed"
        self._cut_off_at_s = None
        link.frame_bytes_max = first.frame_bytes_max
        self.links[first.name] = link
        before, self._scheduler = self._scheduler, first.name
        self._user.scheduler_up(first.name, first)
        self._all_dialled()
        if before not in ("", first.name):
            self._unreachable(before)
        return first.name

    def _said(self, name: str, batch: list[Any]) -> None:
        goodbye = batch.pop() if type(batch[-1]) is m.Goodbye else None
        if batch:
            self._user.scheduler_said(name, batch)
        if goodbye is not None:
            raise LinkError(goodbye.reason)


class RelayedSession(Session):
    """See the module's docstring. Of a `Session`'s methods those that ask for nodes are not there."""

    def __init__(self, task: RunningTask, *, submit_timeout_s: float = SUBMIT_TIMEOUT_S) -> None:
        """submit_timeout_s: how long jobs wait for a scheduler, and so does `start`: the one that has the task may be
        away for a while, which is no failure of the task's."""
        super().__init__(
            (), user="task", access=OPEN, connect_timeout_s=submit_timeout_s, submit_timeout_s=submit_timeout_s,
            tracing=_tracing_of_task(),
        )  # fmt: skip
        self._task = task

    def __str__(self) -> str:
        return f"the cluster of this task, user {self.user!r}"

    def _sources_of(self, schedulers: str | Sequence[str]) -> list[str]:
        return []

    def _open_http(self) -> None:
        """There is none."""

    def _make_dialling(self, hello: m.Hello) -> Relaying:
        return Relaying(
            self._task, hello, self, self.outgoing, all_dialled=self._all_dialled, denied=self._denied,
            unreachable=self._scheduler_unreachable, made=self._sockets.add,
        )  # fmt: skip

    async def nodes(self) -> list[NodeStatus]:
        """There is no list for tasks."""
        raise SparrowError(NO_LIST_OF_NODES)

    async def wait_for_nodes(self, count: int, timeout_s: float | None = None) -> None:
        """There is no list for tasks."""
        raise SparrowError(NO_LIST_OF_NODES)

    def _link(self) -> RelayedLink:
        for link in self._links.values():
            return cast("RelayedLink", link)
        raise LinkError(f"no scheduler can be reached: {self.why_cut_off()}")

    async def _upload(self, data: bytes, hash_: str, is_wanted: Callable[[], bool] = lambda: True) -> BlobRef:
        deadline_s = self._clock() + self._submit_timeout_s
        while True:
            try:
                stored = await self._store(data)
                if stored.why_not:
                    raise Refused(stored.why_not, LINK_PAUSE_S)
                return BlobRef(stored.hash, len(data), stored.at)
            except (LinkError, Refused):
                if not is_wanted() or self._clock() >= deadline_s:
                    raise
                await asyncio.sleep(LINK_PAUSE_S)
                self._check_not_stopped()
            except OSError as error:
                raise Refused(f"large data cannot be handed to the node: {error.strerror or error}") from None

    async def _store(self, data: bytes) -> x.DataStored:
        """The node monitor's answer to a file with these data."""
        link = self._link()
        file = await asyncio.to_thread(store, data, self._task.files_directory, inline_bytes_max=-1)
        assert isinstance(file, x.File), "all data are more than -1 bytes"
        answer: x.DataStored = await link.ask(lambda number: x.StoreData(number, file))
        return answer

    async def _addresses_of_nodes(self) -> list[str]:
        return []

    async def download(self, ref: BlobRef) -> bytearray:
        """Have the node monitor fetch large data; `ResultLost` if none of their nodes has them any more."""
        async with self._downloads:
            deadline_s = self._clock() + self._submit_timeout_s
            while True:
                try:
                    fetched: x.DataFetched = await self._link().ask(
                        lambda number: x.FetchData(number, ref.hash, ref.size, ref.at)
                    )
                    if fetched.file is not None:
                        return bytearray(await asyncio.to_thread(read, fetched.file))
                    reason = fetched.why_not
                except (LinkError, FileNotFoundError) as error:
                    # The scheduler is lost, and so are the link and its files. The node still has the data.
                    if self._clock() < deadline_s:
                        await asyncio.sleep(LINK_PAUSE_S)
                        self._check_not_stopped()
                        continue
                    reason = str(error)
                except OSError as error:
                    reason = str(error)
                raise ResultLost(f"{ref.size} bytes cannot be fetched: {reason}")


def _tracing_of_task() -> JobSpans | None:
    """Jobs of a task whose own job is traced are in the same trace."""
    if not in_task.is_traced():
        return None
    from sparrow_py.session.job_spans import job_spans  # Which other programs do without.

    try:
        return job_spans(True)
    except ModuleNotFoundError:  # This worker has no OpenTelemetry.
        return None
