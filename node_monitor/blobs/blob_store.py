"""The files behind `blobs.BlobTable`: large inputs and results on this machine, and the ways in which they come.

Blobs come from clients (`receive`, an upload), from executors (`take`, a file that is moved) and from other nodes
(`fetch`). A file is named by its hash once it is whole and nobody can change it any more, so that a file always has the
bytes that its name says. The page cache keeps blobs in memory that are used; the daemon itself holds a few chunks per
transfer. One store serves all node monitors of a process. It makes no decisions: `BlobTable` says which blobs may stay.

A few threads hash and write (`writers`), a batch at a time, so that neither a slow disk nor SHA-256 holds the event
loop up.

The directory (mode 0700) lies in the given one. Its disk should have room for `bytes_max` and a little more: files that
are evicted while they are served take room until they have been sent.
    HASH        a blob; only to be read, by the executors' account, or by those accounts whose tasks have needed it
    incoming/   a directory for each executor, in which it puts its results
    partial/    blobs on their way, and files to be deleted
    lock        locked while a store uses the directory; the next store to start deletes the files of one that died
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import logging
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import aiohttp

from node_monitor.blobs.blobs import BlobTable
from node_monitor.blobs.lack_of_room import LackOfRoom
from node_monitor.blobs.result_files import NEW_FILE, ResultDirectory, Taking, close_to_others
from node_monitor.blobs.writers import Writers
from node_monitor.host import access_lists
from node_monitor.host.removal import END_TIMEOUT_S, Remover, remove_tree
from sparrow_py.access.credentials import Access
from sparrow_py.errors import InvalidOption, LinkError, shown
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.limits.seats import Seats
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.timing.clock import Clock, DeadlineTimer
from sparrow_py.wire import blobs
from sparrow_py.wire.blobs import WrongBytes

log = logging.getLogger("sparrow.node_monitor.blobs")
FETCHES_AT_ONCE_MAX = 16
UPLOADS_AT_ONCE_MAX = 16
"""Further transfers wait for their turn, since each takes a few chunks of memory. Each user has a share of the places,
so that nobody waits for another user's slow transfers."""
ARRIVAL_BYTES_PER_S_MIN = 16 << 10
"""A transfer that is slower is given up: it holds a place for which others wait."""
BATCH_BYTES = 512 << 10
"""Bytes that are hashed and written in one go; a transfer has at most two batches in memory."""
PREFIX = "sparrow-blobs"
LOCK_NAME = "lock"
STOPPED = "the node monitor is shutting down"
GIVEN_UP = "nobody waits for it any more"

T = TypeVar("T")
Done = Callable[[str, str], None]
"""Called with the blob's hash, and with "" or the reason why the blob cannot be had, a `LackOfRoom` if it is that."""


class NoRoom(Exception):
    """A blob cannot be kept: the table or the disk has no room for it."""


class NotWritten(NoRoom):
    """The disk has no room for it, or takes no bytes."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"it cannot be written: {_os_reason(error)}")


class Counters:
    """Counts since the start, for the metrics."""

    __slots__ = ("fetch_failures", "fetched_bytes", "no_room", "served_bytes", "uploaded_bytes")

    def __init__(self) -> None:
        self.fetched_bytes = 0
        self.uploaded_bytes = 0
        self.served_bytes = 0
        """`…_bytes` are those of transfers that were completed."""
        self.fetch_failures = 0
        self.no_room = 0


class _Transfer:
    """A blob that is being fetched, and the callers that wait for it."""

    __slots__ = ("addresses", "ref", "task", "user", "waiting")

    def __init__(self, ref: BlobRef, user: str) -> None:
        self.ref = ref
        self.user = user
        """The user who wants the blob, to whose share the transfer counts."""
        self.addresses: list[str] = []
        """Addresses that were tried, and after them those that are still to be tried."""
        self.waiting: list[tuple[Hashable, Done]] = []
        """And for whom each of them does."""
        self.task: asyncio.Task[None] | None = None
        """None until it is the transfer's turn."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from others: nobody's depends on the addresses that another user names, or on its room."""
        return self.user, self.ref.hash, self.ref.size

    def join(self, addresses: Iterable[str], done: Done, owner: Hashable) -> None:
        """Another caller wants the blob, and may know further addresses."""
        new = (address for address in dict.fromkeys(addresses) if address not in self.addresses)
        self.addresses += itertools.islice(new, blobs.ADDRESSES_TRIED_MAX - len(self.addresses))
        self.waiting.append((owner, done))

    def leave(self, owner: Hashable) -> list[Done]:
        """What waits for this owner, and does so no more."""
        left = [done for other, done in self.waiting if other == owner]
        self.waiting = [entry for entry in self.waiting if entry[0] != owner]
        return left

    def take(self) -> list[Done]:
        """All that wait, and do so no more."""
        waiting, self.waiting = self.waiting, []
        return [done for _, done in waiting]


class BlobStore:
    """The blobs of one process. All methods run on its loop, after `start`."""

    def __init__(
        self,
        table: BlobTable,
        session: aiohttp.ClientSession,
        access: Callable[[], Access],
        clock: Clock,
        directory: str = "",
        readers_gid: int | None = None,
        readers: Mapping[str, int] | None = None,
    ) -> None:
        """readers: user ids of accounts, by name, that may read those blobs which `file_for` has named for them.

        readers_gid: a group that may read all blobs.
        """
        self.table = table
        self.address = ""
        """host:port at which this process listens, from which it does not fetch. Set once it is known."""
        self.counters = Counters()
        self.upload_seats = Seats("UPLOADS_AT_ONCE_MAX", UPLOADS_AT_ONCE_MAX, "uploads are read at a time")
        self._session = session
        self._access = access
        self._clock = clock
        self._readers = dict(readers or {})
        self._directory = _Directory(directory, readers_gid, tuple(self._readers.values()))
        self._readers_gid = readers_gid
        """Group of the executors' user, if that is another user than ours."""
        self._readable: dict[str, set[int]] = {}
        """Hash to the user ids of the accounts that may read the blob."""
        self._timer = DeadlineTimer(clock, table.next_deadline_s, self._expire)
        self._writers = Writers()
        self._fetch_seats = Seats("FETCHES_AT_ONCE_MAX", FETCHES_AT_ONCE_MAX, "blobs are fetched at a time")
        self._transfers: dict[tuple[str, str, int], _Transfer] = {}
        """All that are under way or wait for their turn, by their keys."""
        self._queued: dict[str, dict[tuple[str, str, int], _Transfer]] = {}
        """By user those that wait: a user's get seats by turns among at most so many tasks as there are seats."""
        self._tasks: Counter[str] = Counter()
        """Tasks of transfers, by user."""
        self._unfetched: set[str] = set()
        """Hashes of executors' results that are here and that nobody has fetched."""
        self._numbers = itertools.count()
        self.remover = Remover()
        """Removes what executors leave in their directories."""
        self._full_disk_lines = SparingLog(log)
        self._full_table_lines = SparingLog(log)
        """Users' shares are no reason to leave out what the disk lacks."""
        self._stopped = False

    def start(self) -> None:
        """Make the directories; `InvalidOption` if that fails."""
        self._directory.open()

    async def stop(self) -> None:
        """End all transfers and delete all files. Callers that wait for a fetch are told the reason."""
        self._stopped = True
        self._timer.cancel()
        tasks = [transfer.task for transfer in self._transfers.values() if transfer.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._queued.clear()
        for transfer in list(self._transfers.values()):  # Those whose tasks had not begun.
            self._ended(transfer, STOPPED)
        self._writers.stop()
        await self.remover.stop()
        await asyncio.to_thread(self._directory.close)

    # ---- what is here ------------------------------------------------------------------------

    @property
    def incoming(self) -> str:
        """The directory with the executors' directories for results, on the same file system as the blobs."""
        return self._directory.incoming

    def path(self, hash: str) -> str:
        """The path of the blob, if it is here."""
        return f"{self._directory.root}/{hash}"

    def has(self, hash: str) -> bool:
        """Whether the blob is here. A blob whose file somebody has deleted is forgotten."""
        if hash not in self.table:
            return False
        if not os.path.isfile(self.path(hash)):  # noqa: PTH113 - to make a Path takes longer than this call
            log.warning("the file of blob %s was deleted", hash)
            self.table.discard(hash)
            self._forget(hash)
            return False
        return True

    def file(self, hash: str) -> x.File:
        """The blob as executors are told of it; `KeyError` if it is not here. Pin it as long as it is read."""
        size = self.table.size(hash)
        if size is None:
            raise KeyError(hash)
        return x.File(self.path(hash), size, hash)

    def file_for(self, hash: str, account: str) -> x.File:
        """As `file`, for an executor of this account, which may read the blob from now on."""
        uid = self._readers.get(account)
        if uid is not None:
            readable = self._readable.setdefault(hash, set())
            if uid not in readable:
                try:
                    access_lists.allow(self.path(hash), {*readable, uid}, access_lists.READ, owner=access_lists.READ)
                    readable.add(uid)
                except OSError as error:  # The task's own error will say that the file cannot be read.
                    log.warning("blob %s cannot be opened to account %s: %s", hash, account, _os_reason(error))
        return self.file(hash)

    def _forget(self, hash: str) -> None:
        """Drop what is known of a blob that is here no more."""
        self._unfetched.discard(hash)
        self._readable.pop(hash, None)

    def why_no_room(self, size: int, user: str = "") -> str:
        """Why the user's blob of this size cannot be kept now; "" if it can."""
        return "" if self.table.fits(size, self._clock(), user) else self.table.refusal(size, user=user)

    def lack_of_room(self, size: int, in_all: int, user: str = "") -> LackOfRoom | None:
        """Why the user's further inputs of a task, so many bytes, cannot be kept now beside those that are here, of
        `in_all` bytes together; None if they can."""
        if not self.table.may_ever_fit(in_all, user):
            return LackOfRoom(self.table.refusal(in_all, "task's input", user), is_lasting=True)
        if self.table.fits(size, self._clock(), user):
            return None
        return LackOfRoom(self.table.refusal(size, "input", user))

    def found_no_room(self, what: str, why: str, *, is_disk_full: bool) -> None:
        """Such data cannot be kept here: count it, and have the log say so. That is a warning if the disk is full; that
        users have their shares is no fault of the node's."""
        if self._stopped:
            return
        self.counters.no_room += 1
        say = self._full_disk_lines.warning if is_disk_full else self._full_table_lines.info
        say("no room in %s for %s: %s", self._directory.root, what, why)

    @contextlib.contextmanager
    def _counting_no_room(self, what: str, size: int, user: str) -> Iterator[None]:
        try:
            yield
        except NoRoom as error:
            of_user = f"{what} of {size} bytes" + (f", of {shown(user)}" if user else "")
            self.found_no_room(of_user, str(error), is_disk_full=isinstance(error, NotWritten))
            raise

    def pin(self, hash: str, owner: Hashable, user: str = "") -> bool:
        """Keep the blob for the user until `unpin(owner)`; False if it is not here, or has no room in the user's
        share."""
        return self.table.pin(hash, owner, user)

    def why_not_kept(self, hash: str, user: str) -> str:
        """Why the blob could not be pinned just now for the user."""
        size = self.table.size(hash)
        return "it is not here any more" if size is None else self.table.refusal(size, "input", user)

    def unpin(self, owner: Hashable) -> None:
        """The owner needs none of its blobs any more."""
        self.table.unpin(owner, self._clock())
        self._timer.update()

    def touch(self, hash: str, user: str = "") -> bool:
        """The user has used the blob, if it is here; whether it is held."""
        return self.table.touch(hash, self._clock(), user)

    def served(self, hash: str, bytes_sent: int, whole: bool, user: str = "") -> None:
        """So many bytes of the blob were sent to a peer."""
        self.counters.served_bytes += bytes_sent
        self.touch(hash, user)
        if whole:
            self._unfetched.discard(hash)

    @property
    def is_needed(self) -> bool:
        """Whether a job needs what is here, or its client may fetch it yet."""
        return self.table.is_needed(self._clock())

    @property
    def unfetched(self) -> int:
        """How many results of executors nobody has fetched though they are pinned or leased. O(results)."""
        now_s = self._clock()
        return sum(self.table.holds(hash, now_s) for hash in self._unfetched)

    def _expire(self) -> None:
        self._delete(self.table.expire(self._clock()))

    def _delete(self, hashes: Iterable[str]) -> None:
        """Delete files: their names at once, since another file may need them, their bytes in a thread, which may take
        long."""
        for hash in hashes:
            self._forget(hash)
            path = self._partial_path()
            with contextlib.suppress(OSError):
                os.rename(self.path(hash), path)  # noqa: PTH104
            with contextlib.suppress(RuntimeError):  # The store has stopped: the whole directory is deleted.
                self._writers.submit("", partial(_unlink, path))

    def _partial_path(self) -> str:
        return f"{self._directory.partial}/{next(self._numbers)}"

    # ---- from executors ----------------------------------------------------------------------

    async def take(self, directory: ResultDirectory, file: x.File, owner: Hashable, user: str = "") -> x.File:
        """Take over a result that an executor has put into its directory, count it to the user, and pin it for the
        owner. Returns the file in its new place.

        The hash is computed here, and compared with the one that the executor states. `LinkError` if the executor may
        not name this file, `NoRoom` if the file cannot be kept, `WrongBytes` if the executor has stated another hash:
        then nothing is kept.
        """
        path = self._partial_path()
        kept = False
        try:
            with self._counting_no_room("a result", file.size, user):
                with contextlib.closing(Taking(directory, file, path, self._readers_gid)) as taking:
                    await self._in_thread(user, taking.begin)
                    with self._room(file.size, user, "result"):
                        while not await self._in_thread(user, taking.go_on):
                            pass
                hash = taking.hash
                if file.hash not in ("", hash):
                    raise WrongBytes(f"the result's file has the SHA-256 {hash}; its executor said {shown(file.hash)}")
                self._keep(path, hash, file.size, owner, user)
                kept = True
        finally:
            if not kept:
                _unlink(path)
        self._unfetched.add(hash)
        return self.file(hash)

    async def _in_thread(self, user: str, work: Callable[[], T]) -> T:
        """Do the user's work in a thread; `NoRoom` if it fails, because the disk is full, say."""
        try:
            doing = self._writers.submit(user, work)
        except RuntimeError:
            raise NoRoom(STOPPED) from None
        try:
            return await asyncio.wrap_future(doing)
        except LinkError:
            raise
        except OSError as error:
            raise NotWritten(error) from None

    # ---- from clients and other nodes --------------------------------------------------------

    async def receive(
        self,
        hash: str,
        size: int,
        content: aiohttp.StreamReader,
        owner: Hashable = None,
        user: str = "",
        *,
        is_copy: bool = False,
    ) -> None:
        """Read a blob from a body, keep it, and count it to the user; pin it if there is an owner.

        is_copy: the blob comes from another node, for tasks here. `NoRoom` if the blob cannot be kept, `WrongBytes` if
        its size or hash is another, `TimeoutError` if nothing came
        for `STALL_TIMEOUT_S`, or too little (`ARRIVAL_BYTES_PER_S_MIN`), and whatever `content` raises: then nothing is
        kept.
        """
        path = self._partial_path()
        kept = False
        try:
            with self._counting_no_room("an input" if is_copy else "an upload", size, user):
                with self._room(size, user), _Arrival(path, user, self._writers, self._readers_gid) as arrival:
                    blobs.check_digest(await arrival.read(content, size), hash)
                self._keep(path, hash, size, owner, user, is_copy=is_copy)
                kept = True
        finally:
            if not kept:
                _unlink(path)

    @contextlib.contextmanager
    def _room(self, size: int, user: str, what: str = "blob") -> Iterator[None]:
        """Set room aside for a blob on its way, which is kept right after this block; `NoRoom` if there is none."""
        evicted = self.table.reserve(size, self._clock(), user)
        if evicted is None:
            raise NoRoom(self.table.refusal(size, what, user))
        self._delete(evicted)
        try:
            yield
        finally:
            self.table.release(size, user)

    def _keep(self, path: str, hash: str, size: int, owner: Hashable, user: str, *, is_copy: bool = False) -> None:
        """Give a whole blob its name, once it has room and nobody else can write to it; pin it if there is an owner.

        `NoRoom` if the file cannot be renamed.
        """
        if self.has(hash):  # The blob has come in another way meanwhile.
            _unlink(path)
        else:
            try:
                os.rename(path, self.path(hash))  # noqa: PTH104
            except OSError as error:
                raise NotWritten(error) from None
        evicted = self.table.add(hash, size, self._clock(), user, is_copy=is_copy)
        assert evicted is not None, "there was room for the blob just now"
        self._delete(evicted)
        if owner is not None:
            self.table.pin(hash, owner, user)
        self._timer.update()

    def fetch(self, ref: BlobRef, done: Done, user: str = "", owner: Hashable = None) -> None:
        """Get the blob from one of `ref.at`, unless it is here, for the user. owner: who may give it up.

        `done(hash, "")` or `done(hash, reason)` is called once, and not before this returns. During that call the blob
        is pinned, so that `done` may pin it for longer. A user's fetches of one blob at the same time share a
        transfer.
        """
        reason = self._malformed(ref)
        if reason is None:
            reason = self._here(ref)
        if reason is not None:
            owner = object()
            self.table.pin(ref.hash, owner, user)
            asyncio.get_running_loop().call_soon(self._answer, [done], ref.hash, reason, owner)
            return
        key = user, ref.hash, ref.size
        transfer = self._transfers.get(key)
        if transfer is None:
            transfer = self._transfers[key] = _Transfer(ref, user)
            self._queued.setdefault(user, {})[key] = transfer
        transfer.join(ref.at, done, owner)
        self._start_queued(user)

    def give_up(self, hash: str, size: int, user: str, owner: Hashable = None) -> None:
        """This owner, who waits for the user's fetch of the blob, does not need it any more, and is told so soon. If
        nobody else waits, the fetch ends."""
        transfer = self._transfers.get((user, hash, size))
        if transfer is None:
            return
        left = transfer.leave(owner)
        asyncio.get_running_loop().call_soon(self._answer, left, hash, GIVEN_UP, object())
        if transfer.waiting:
            return
        del self._transfers[transfer.key]
        if transfer.task is None:
            self._take_from_queue(transfer)
        else:
            transfer.task.cancel()

    def _take_from_queue(self, transfer: _Transfer) -> None:
        queued = self._queued[transfer.user]
        del queued[transfer.key]
        if not queued:
            del self._queued[transfer.user]

    def _start_queued(self, user: str) -> None:
        while user in self._queued and self._tasks[user] < FETCHES_AT_ONCE_MAX and not self._stopped:
            transfer = next(iter(self._queued[user].values()))
            self._take_from_queue(transfer)
            self._tasks[user] += 1
            transfer.task = asyncio.create_task(self._transfer(transfer))
            transfer.task.add_done_callback(lambda _: self._task_over(user))

    def _task_over(self, user: str) -> None:
        self._tasks[user] -= 1
        if not self._tasks[user]:
            del self._tasks[user]
        self._start_queued(user)

    def _malformed(self, ref: BlobRef) -> str | None:
        if self._stopped:
            return STOPPED
        if not blobs.is_hash(ref.hash):
            return f"hash: {shown(ref.hash)} is not valid; allowed: {blobs.HASH_ALLOWED}"
        if ref.size < 0:
            return f"size: {ref.size} is not valid; allowed: a whole number from 0"
        return None

    def _here(self, ref: BlobRef) -> str | None:
        """None if the blob is not here, "" if it is, else the reason why the blob of this hash is another one."""
        if not self.has(ref.hash):
            return None
        here = self.table.size(ref.hash)
        return "" if here == ref.size else f"it is not {ref.size} bytes here"

    async def _transfer(self, transfer: _Transfer) -> None:
        reason, ref = STOPPED, transfer.ref
        try:
            async with self._fetch_seats.taken(transfer.user):
                reason = await self._fetch_from_any(transfer, ref)
        except Exception as error:  # A bug of ours: the callers that wait must be told.
            log.exception("blob %s could not be fetched", ref.hash)
            reason = f"internal error: {error!r}"
        finally:
            self._ended(transfer, reason)

    def _ended(self, transfer: _Transfer, reason: str) -> None:
        if self._transfers.get(transfer.key) is transfer:  # Else it was given up.
            del self._transfers[transfer.key]
            self.counters.fetch_failures += bool(reason) and not isinstance(reason, LackOfRoom)
        self._answer(transfer.take(), transfer.ref.hash, reason, transfer)

    async def _fetch_from_any(self, transfer: _Transfer, ref: BlobRef) -> str:
        """Fetch the blob and pin it for the transfer. Returns "", or the reason why the blob cannot be had."""
        reasons = []
        for address in transfer.addresses:  # The list may grow meanwhile.
            here = self._here(ref)
            if here is not None:
                self.table.pin(ref.hash, transfer, transfer.user)
                return here
            if address == self.address:
                reasons.append(f"{address}: not here any more")
                continue
            try:
                access = self._access()
                proof = access.blob_headers(ref.hash)
                async with blobs.get_blob(self._session, address, access, ref.hash, proof) as response:
                    blobs.check_size(response.content_length, ref.size)
                    await self.receive(ref.hash, ref.size, response.content, transfer, transfer.user, is_copy=True)
            except NoRoom as error:
                return LackOfRoom(str(error), is_lasting=not self.table.may_ever_fit(ref.size, transfer.user))
            except LinkError as error:
                reasons.append(str(error))
                continue
            self.counters.fetched_bytes += ref.size
            return ""
        return blobs.all_reasons(reasons)

    def _answer(self, waiting: list[Done], hash: str, reason: str, owner: Hashable) -> None:
        for done in waiting:
            try:
                done(hash, reason)
            except Exception:  # The other callers must be told all the same.
                log.exception("a callback that waited for blob %s raised an exception", hash)
        self.unpin(owner)


class _Arrival:
    """A file that is written and hashed as its bytes come; it is open until the `with` block ends."""

    def __init__(self, path: str, user: str, writers: Writers, readers_gid: int | None) -> None:
        try:
            self._file = open(os.open(path, NEW_FILE, 0o600), "wb")  # noqa: PTH123, SIM115
            close_to_others(self._file.fileno(), readers_gid)
        except OSError as error:
            raise NotWritten(error) from None
        self._user = user
        self._writers = writers
        self._writing: Future[None] | None = None
        self._digest = hashlib.sha256()

    def __enter__(self) -> _Arrival:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file once no thread writes to it: a descriptor closed early could soon be another file's."""
        if self._writing is None:
            _close(self._file)
        else:
            self._writing.add_done_callback(lambda _: _close(self._file))

    async def read(self, content: aiohttp.StreamReader, size: int) -> str:
        """Read and write all bytes; returns their SHA-256. Errors are those of `BlobStore.receive`."""
        received = batch_bytes = 0
        batch: list[bytes] = []
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        while True:
            due_s = min(clock(), begun_s + received / ARRIVAL_BYTES_PER_S_MIN) + blobs.STALL_TIMEOUT_S
            async with asyncio.timeout_at(due_s):
                chunk = await content.readany()
            received += len(chunk)
            if received > size or (received < size and not chunk):
                raise WrongBytes(f"it is {'more than' if received > size else 'only'} {min(received, size)} bytes")
            batch.append(chunk)
            batch_bytes += len(chunk)
            if batch_bytes >= BATCH_BYTES or not chunk:
                await self._written()
                self._write(batch)
                batch, batch_bytes = [], 0
            if not chunk:
                await self._written()
                return self._digest.hexdigest()

    def _write(self, batch: list[bytes]) -> None:
        """Let a thread write while the next batch comes."""
        try:
            self._writing = self._writers.submit(self._user, partial(self._absorb, batch))
        except RuntimeError:
            raise NoRoom(STOPPED) from None

    async def _written(self) -> None:
        if self._writing is not None:
            try:
                await asyncio.wrap_future(self._writing)
            except OSError as error:
                raise NotWritten(error) from None

    def _absorb(self, batch: list[bytes]) -> None:
        for chunk in batch:
            self._digest.update(chunk)
            self._file.write(chunk)
        self._file.flush()


class _Directory:
    """The directory of a store's files: in the given one, or a temporary one."""

    def __init__(self, given: str, readers_gid: int | None = None, readers: Sequence[int] = ()) -> None:
        self._given = given
        self._readers_gid = readers_gid
        self._readers = readers
        self._lock: int | None = None
        self.root = ""

    @property
    def incoming(self) -> str:
        return f"{self.root}/incoming"

    @property
    def partial(self) -> str:
        return f"{self.root}/partial"

    def open(self) -> None:
        """Make and lock the directory, and delete the files of a store that died; `InvalidOption` if that fails."""
        try:
            if self._given:
                self._open_given()
            else:
                self._open_temporary()
            for name in (self.incoming, self.partial):
                Path(name).mkdir(mode=0o700)
            if self._readers_gid is not None:
                for name in (self.root, self.incoming):  # The group may enter, not list: names of blobs are secrets.
                    os.chown(name, -1, self._readers_gid)
                    Path(name).chmod(0o710)
            if self._readers:
                self._let_in()
        except OSError as error:
            allowed = f"a directory where files can be made ({_os_reason(error)})"
            raise InvalidOption("blob_dir", self._given or tempfile.gettempdir(), allowed) from None

    def _let_in(self) -> None:
        """Let the accounts enter the directories, but not list them; `InvalidOption` if the file system has no access
        lists."""
        try:
            for name in (self.root, self.incoming):
                access_lists.allow(name, self._readers, access_lists.ENTER, owner=7)
        except OSError as error:
            raise InvalidOption("blob_dir", self._given or tempfile.gettempdir(), access_lists.allowed(error)) from None

    def close(self) -> None:
        """Delete all files, and unlock the directory."""
        if self._lock is None:
            return
        # The lock file of a given directory stays: the next store may have opened it already.
        remove_tree(self.root, END_TIMEOUT_S, keep=LOCK_NAME if self._given else "")
        os.close(self._lock)
        self._lock = None

    def _open_given(self) -> None:
        directory = Path(os.path.realpath(self._given), PREFIX)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own_directory(directory):
            raise InvalidOption("blob_dir", self._given, f"one where {PREFIX} is a directory of this user's")
        access_lists.remove(str(directory))  # An earlier run may have left some.
        directory.chmod(0o700)
        self.root = str(directory)
        self._lock = _try_lock(self.root, create=True)
        if self._lock is None:
            raise InvalidOption("blob_dir", self._given, "a directory that no other node monitor uses")
        remove_tree(self.root, keep=LOCK_NAME)

    def _open_temporary(self) -> None:
        for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*"):
            _delete_abandoned(path)
        while self._lock is None:  # Another store that starts may have taken the new directory for abandoned.
            self.root = os.path.realpath(tempfile.mkdtemp(prefix=f"{PREFIX}-"))
            self._lock = _try_lock(self.root, create=True)


def _try_lock(root: str, create: bool = False) -> int | None:
    """A descriptor that holds the directory's lock until it is closed; None if another process has the lock."""
    path = f"{root}/{LOCK_NAME}"
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(path)):  # noqa: PTH116
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def _delete_abandoned(path: Path) -> None:
    """Delete a temporary directory whose store has died."""
    with contextlib.suppress(OSError):
        lock = _try_lock(str(path)) if _is_own_directory(path) else None
        if lock is not None:
            remove_tree(str(path), END_TIMEOUT_S)
            os.close(lock)


def _is_own_directory(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.unlink(path)  # noqa: PTH108


def _close(file: BinaryIO) -> None:
    with contextlib.suppress(OSError):  # The file was flushed, or is not kept.
        file.close()


def _os_reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
