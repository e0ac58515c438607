"""The blob store with real files: fetches from other nodes, results that are taken over, leases, the directory."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from node_monitor.blobs import blob_store, result_files
from node_monitor.blobs.blob_store import BlobStore, NoRoom
from node_monitor.blobs.blobs import BlobTable
from node_monitor.blobs.lack_of_room import LackOfRoom
from node_monitor.blobs.result_files import ResultDirectory
from node_monitor.daemon import NodeBlobs
from sparrow_py.access.credentials import OPEN, Access
from sparrow_py.daemon.process import until
from sparrow_py.errors import InvalidOption, LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.timing.clock import Clock
from sparrow_py.wire import blobs
from sparrow_py.wire import messages as m
from sparrow_py.wire.blobs import WrongBytes
from tests.support.blob_nodes import (
    ACCESS,
    AUTHORIZED,
    DATA,
    HANG,
    HASH,
    LEASE_S,
    MB,
    RETENTION_S,
    Node,
    Peer,
    SetClock,
    Start,
    make_node,
    names,
    ok,
    url,
)


async def go_round(one: Node, other: Node, session: aiohttp.ClientSession) -> None:
    data = os.urandom(30 * MB)
    ref = await blobs.upload(session, one.address, ACCESS, memoryview(data), blobs.sha256_hex(data))
    assert await other.fetch(ref) == ""
    got = await blobs.download(session, BlobRef(ref.hash, ref.size, (other.address,)), ACCESS)
    assert got == data


async def test_30_mb_go_round_whole(start: Start, session: aiohttp.ClientSession) -> None:
    await go_round(await start(), await start(), session)


def test_30_mb_go_round_on_the_daemons_loop_which_has_no_sendfile(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with aiohttp.ClientSession() as session:
            nodes = one, other = [make_node(session, str(tmp_path / name)) for name in ("one", "other")]
            for node in nodes:
                await node.start()
            await go_round(one, other, session)
            await until(lambda: [node.store.counters.served_bytes for node in nodes] == [30 * MB] * 2, every_s=0.001)
            for node in nodes:
                await node.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


# ---- fetch -------------------------------------------------------------------------------------


async def test_a_blob_is_fetched_from_another_node(start: Start) -> None:
    one, other = await start(), await start()
    assert await other.fetch(one.keep(DATA)) == ""
    assert Path(other.store.path(HASH)).read_bytes() == DATA
    assert other.store.counters.fetched_bytes == len(DATA)
    assert other.files == {HASH}
    await until(lambda: one.store.counters.served_bytes == len(DATA), every_s=0.001)


async def test_what_is_here_is_not_fetched(start: Start) -> None:
    one, other = await start(), await start()
    other.keep(DATA)
    assert await other.fetch(one.keep(DATA)) == ""
    assert one.got == []


async def test_fetches_at_once_of_one_blob_are_one_transfer(start: Start) -> None:
    one, other = await start(), await start()
    ref = one.keep(DATA)
    assert list(await asyncio.gather(*(other.fetch(ref) for _ in range(20)))) == [""] * 20
    assert one.got == [f"GET {HASH}"]
    await until(lambda: one.store.counters.served_bytes == len(DATA), every_s=0.001)


async def test_many_blobs_at_once(start: Start) -> None:
    one, other = await start(), await start()
    refs = [one.keep(bytes([number]) * 5000) for number in range(3 * blob_store.FETCHES_AT_ONCE_MAX)]
    assert set(await asyncio.gather(*map(other.fetch, refs))) == {""}
    assert len(other.files) == len(refs)


async def test_the_blob_is_pinned_while_done_runs(start: Start) -> None:
    """It may be so full that the next one evicts what nobody holds."""
    one, other = await start(), await start(bytes_max=len(DATA), lease_s=0.0)
    ref = one.keep(DATA)
    for _ in range(2):  # fetched; then here
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def done(hash: str, reason: str, told: asyncio.Future[str] = told) -> None:
            assert other.store.why_no_room(1)
            assert other.store.pin(hash, "job")
            told.set_result(reason)

        other.store.fetch(ref, done)
        assert await told == ""
        assert other.store.why_no_room(1)
        other.store.unpin("job")
        assert other.store.why_no_room(1) == ""


async def test_the_next_address_is_tried_and_all_reasons_are_told(start: Start, peer: Peer) -> None:
    one, other = await start(), await start()
    wrong = DATA[:-1] + b"!"
    gone, lies, cut, longer = (
        one.address,
        await peer(ok(len(DATA)) + wrong),
        await peer(ok(len(DATA)) + DATA[:1000]),
        await peer(ok(len(DATA) + 1) + DATA + b"!"),
    )
    unused = await peer(b"")
    ref = BlobRef(HASH, len(DATA), (other.address, gone, lies, cut, longer, unused, "nowhere", "a b:1"))
    reasons = (await other.fetch(ref)).split("; ")
    assert reasons[0] == f"{other.address}: not here any more"
    assert reasons[1] == f"{gone}: 404"
    assert reasons[2] == f"{lies}: its SHA-256 is {blobs.sha256_hex(wrong)}, not {HASH}"
    assert reasons[3].startswith(f"{cut}: broke off: ")
    assert reasons[4] == f"{longer}: it is not {len(DATA)} bytes there"
    assert reasons[5].startswith(f"{unused}: broke off: ")
    assert reasons[6:] == ["nowhere: not host:port", "a b:1: not host:port"]
    assert other.files == set()
    assert other.store.counters.fetch_failures == 1
    one.keep(DATA)
    assert await other.fetch(BlobRef(HASH, len(DATA), (lies, cut, gone))) == ""


async def test_an_address_where_nobody_listens(node: Node) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    assert (await node.fetch(BlobRef(HASH, 1, (address,)))).startswith(f"{address}: cannot be reached: ")


async def test_a_peer_that_stalls_is_left(start: Start, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "STALL_TIMEOUT_S", 0.05)
    one, other = await start(), await start()
    one.keep(DATA)
    mute, stalls = await peer(HANG), await peer(ok(len(DATA)) + DATA[:1000] + HANG)
    reason = await other.fetch(BlobRef(HASH, len(DATA), (mute, stalls)))
    assert reason == f"{mute}: nothing came or went for 0.05 s; {stalls}: nothing came or went for 0.05 s"
    assert other.files == set()
    monkeypatch.setattr(blobs, "STALL_TIMEOUT_S", 0.5)  # The good one may be slow on a busy machine.
    assert await other.fetch(BlobRef(HASH, len(DATA), (stalls, one.address))) == ""


async def test_who_joins_a_transfer_brings_addresses(start: Start, peer: Peer) -> None:
    one, other = await start(), await start()
    ref = one.keep(DATA)
    bad = await peer(ok(len(DATA)) + DATA[:10])
    first, second = await asyncio.gather(other.fetch(BlobRef(HASH, len(DATA), (bad,))), other.fetch(ref))
    assert (first, second) == ("", "")


async def test_who_says_another_size_has_a_transfer_of_its_own(start: Start) -> None:
    one, other = await start(), await start()
    ref = one.keep(DATA)
    good, bad = await asyncio.gather(other.fetch(ref), other.fetch(BlobRef(HASH, 5, ref.at)))
    assert good == ""
    assert bad in (f"{one.address}: it is not 5 bytes there", "it is not 5 bytes here")
    assert await other.fetch(BlobRef(HASH, 5, ref.at)) == "it is not 5 bytes here"


async def test_a_blob_that_has_no_room_is_not_fetched(start: Start) -> None:
    one, other = await start(), await start(bytes_max=10)
    reason = await other.fetch(one.keep(DATA))
    assert reason == (
        f"no room: the blob is {len(DATA)} bytes; at most blob_bytes_max = 10 bytes are kept at a node; 0 are in use"
    )
    assert isinstance(reason, LackOfRoom) and reason.is_lasting


async def test_what_was_fetched_for_a_task_makes_room_for_the_next_when_it_ends_and_what_was_given_does_not(
    start: Start,
) -> None:
    one, other = await start(), await start(bytes_max=2 * len(DATA))
    node = NodeBlobs("n", other.store)
    first, second, third = [one.keep(DATA[:-1] + bytes([number])) for number in range(3)]
    other.keep(DATA)
    assert await other.fetch(first) == "" and node.pin(first.hash, "attempt 1", "") is None
    reason = await other.fetch(second)
    assert isinstance(reason, LackOfRoom) and not reason.is_lasting
    node.unpin("attempt 1")
    for name, ref in [("attempt 2", second), ("attempt 3", third)]:
        assert await other.fetch(ref) == "" and node.pin(ref.hash, name, "") is None
        node.unpin(name)
    await other.settled()
    assert other.files == {HASH, third.hash}


async def test_whether_there_is_room_for_a_tasks_inputs_now_or_ever(start: Start) -> None:
    node = await start(bytes_max=100)
    ask = NodeBlobs("n", node.store).lack_of_room
    node.store.table.add("a", 70, node.clock(), "ada")
    cases = [(5, 10, "ada", None), (6, 10, "ada", m.NO_ROOM_NOW), (6, 76, "ada", m.NO_ROOM_EVER)]
    cases += [(25, 75, "bob", None), (31, 31, "bob", m.NO_ROOM_NOW), (1, 101, "", m.NO_ROOM_EVER)]
    for size, in_all, user, expected in cases:
        lack = ask(size, in_all, user)
        assert (lack and lack.kind) == expected, (size, in_all, user)
    assert ask(31, 31, "bob") == (
        "no room: the input is 31 bytes; at most blob_bytes_max = 100 bytes are kept at a node; 70 are in use"
    )


async def test_what_is_here_and_has_lapsed_is_kept_for_a_user_only_within_its_share(start: Start) -> None:
    node = await start(bytes_max=len(DATA) + 10)
    ref, blobs_of_node = node.keep(DATA), NodeBlobs("n", node.store)
    node.clock.now_s += LEASE_S
    assert not node.store.table.holds(HASH, node.clock())
    lack = blobs_of_node.pin(ref.hash, "attempt", "ada")
    assert lack is not None and lack.kind == m.NO_ROOM_NOW and f"the input is {len(DATA)} bytes" in lack
    assert blobs_of_node.pin(ref.hash, "attempt", "") is None


async def test_odd_references_are_answered(node: Node) -> None:
    assert await node.fetch(BlobRef(HASH, 1, ())) == "no node is named that has it"
    assert (await node.fetch(BlobRef("../x", 1, ("h:1",)))).startswith("hash: '../x' is not valid")
    assert (await node.fetch(BlobRef(HASH, -1, ("h:1",)))).startswith("size: -1 is not valid")


async def test_of_many_addresses_only_so_many_are_tried(node: Node, peer: Peer) -> None:
    reason = await node.fetch(BlobRef(HASH, 1, tuple(f"none{number}" for number in range(1000))))
    assert reason.count("not host:port") == blobs.ADDRESSES_TRIED_MAX


async def test_one_that_waits_and_fails_does_not_harm_the_others(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = await start(), await start()
    ref = one.keep(DATA)

    def fail(hash: str, reason: str) -> None:
        raise RuntimeError("of the one who waits")

    other.store.fetch(ref, fail)
    assert await other.fetch(ref) == ""
    assert "a callback that waited for blob" in caplog.text


async def test_what_is_given_up_leaves_nothing_and_another_fetch_is_a_new_one(start: Start, peer: Peer) -> None:
    one, other = await start(), await start()
    ref = one.keep(DATA)
    stalls = await peer(ok(len(DATA)) + DATA[:1000] + HANG)
    waits = asyncio.ensure_future(other.fetch(BlobRef(HASH, len(DATA), (stalls,))))
    await until(lambda: other.store.table.bytes_reserved > 0, every_s=0.001)
    other.store.give_up(HASH, len(DATA), "")
    assert await other.fetch(ref) == ""
    assert await waits == blob_store.GIVEN_UP
    await until(lambda: not other.store._tasks, every_s=0.001)
    assert not other.store.table.bytes_reserved and not other.store._transfers and other.files == {HASH}


async def test_of_many_fetches_of_a_user_few_have_tasks_and_all_can_be_given_up(start: Start, peer: Peer) -> None:
    one, node = await start(), await start()
    mute = await peer(HANG)
    hashes = [blobs.sha256_hex(bytes([number])) for number in range(3 * blob_store.FETCHES_AT_ONCE_MAX)]
    told: list[str] = []
    for hash in hashes:
        node.store.fetch(BlobRef(hash, 1, (mute,)), lambda _, reason: told.append(reason), "bob")
    assert node.store._tasks == {"bob": blob_store.FETCHES_AT_ONCE_MAX}
    node.store.give_up(hashes[-1], 1, "bob")
    assert await node.fetch(one.keep(DATA)) == ""  # Another user's waits for none of these.
    for hash in hashes:
        node.store.give_up(hash, 1, "bob")
    await until(lambda: not node.store._tasks, every_s=0.001)
    assert told == [blob_store.GIVEN_UP] * len(hashes)
    assert not node.store._transfers and not node.store._queued


async def test_what_one_gives_up_another_of_the_user_waits_for(start: Start, peer: Peer) -> None:
    one, node = await start(), await start()
    mute = await peer(HANG)
    told: dict[str, str] = {}

    def wait_for(ref: BlobRef, owner: str) -> None:
        node.store.fetch(ref, lambda _, reason: told.update({owner: reason}), "bob", owner)

    stalls = BlobRef(HASH, len(DATA), (mute, one.keep(DATA).at[0]))
    for owner in ("client", "task"):
        wait_for(stalls, owner)
    node.store.give_up(HASH, len(DATA), "bob", "nobody")
    node.store.give_up(HASH, len(DATA), "bob", "client")
    await until(lambda: told, every_s=0.001)
    assert told == {"client": blob_store.GIVEN_UP} and list(node.store._transfers) == [("bob", HASH, len(DATA))]
    node.store.give_up(HASH, len(DATA), "bob", "task")
    await until(lambda: not node.store._tasks, every_s=0.001)
    assert told == dict.fromkeys(("client", "task"), blob_store.GIVEN_UP) and not node.store._transfers


async def test_queued_fetches_begin_as_others_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_store, "FETCHES_AT_ONCE_MAX", 1)
    one, other = await start(), await start()
    contents = [bytes([number]) * 9 for number in range(5)]
    refs = [one.keep(content) for content in contents]
    assert await asyncio.gather(*map(other.fetch, refs)) == [""] * 5


async def test_who_waits_when_the_store_stops_is_told(start: Start, peer: Peer) -> None:
    node = await start()
    stalls = await peer(ok(len(DATA)) + DATA[:1000] + HANG)
    waits = asyncio.ensure_future(node.fetch(BlobRef(HASH, len(DATA), (stalls,))))
    await until(lambda: node.store.table.bytes_reserved > 0, every_s=0.001)
    not_begun: list[str] = []
    node.store.fetch(BlobRef(blobs.sha256_hex(b"other"), 5, (stalls,)), lambda _, reason: not_begun.append(reason))
    await node.store.stop()
    assert await waits == blob_store.STOPPED
    assert not_begun == [blob_store.STOPPED]
    assert await node.fetch(BlobRef(HASH, len(DATA), (stalls,))) == blob_store.STOPPED


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["", HASH])
async def test_a_result_is_taken_over_under_the_hash_of_its_bytes_and_pinned(node: Node, said: str) -> None:
    assert await node.take(node.put_file(DATA, said)) == x.File(node.store.path(HASH), len(DATA), HASH)
    path = Path(node.store.path(HASH))
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (DATA, 0o400)
    assert names(node.results.path) == node.partial == []
    node.clock.now_s += 1e6
    assert node.store.why_no_room(100 * MB)
    node.store.unpin("job")
    node.clock.now_s += LEASE_S
    assert node.store.why_no_room(100 * MB) == ""


@pytest.mark.parametrize(
    "said", [blobs.sha256_hex(b"of another user's input"), "", "../lock", HASH.upper(), "x" * 100_000]
)
async def test_another_hash_than_that_of_the_bytes_is_not_believed(node: Node, said: str) -> None:
    file = node.put_file(b"planted", said)
    if said:
        with pytest.raises(
            WrongBytes, match=f"has the SHA-256 {blobs.sha256_hex(b'planted')}; its executor said '"
        ) as error:
            await node.take(file)
        assert len(str(error.value)) < 400
        assert node.files == set()
    else:
        assert (await node.take(file)).hash == blobs.sha256_hex(b"planted")
    assert names(node.results.path) == node.partial == []


async def test_a_result_that_is_here_already_is_pinned_and_its_file_goes(node: Node) -> None:
    node.keep(DATA)
    await node.take(node.put_file(DATA))
    assert node.store.table.bytes_used == len(DATA)
    assert names(node.results.path) == node.partial == []
    node.clock.now_s += 1e6
    assert node.store.table.holds(HASH, node.clock())


async def test_a_result_too_large_is_refused_and_deleted(start: Start) -> None:
    node = await start(bytes_max=100)
    node.keep(b"1234567890")
    with pytest.raises(NoRoom) as caught:
        await node.take(node.put_file(DATA))
    assert str(caught.value) == (
        f"the result is {len(DATA)} bytes; at most blob_bytes_max = 100 bytes are kept at a node; 10 are in use"
    )
    assert names(node.results.path) == node.partial == []


async def test_a_result_of_16_tb_that_takes_no_room_on_disk_is_not_read(node: Node) -> None:
    file = node.put_file(b"")
    try:
        os.truncate(file.path, 16_000_000 * MB)
    except OSError:  # Some file systems know no such files.
        os.truncate(file.path, 1000 * MB)
    with pytest.raises(NoRoom):
        await node.take(x.File(file.path, Path(file.path).stat().st_size, ""))


async def test_a_result_evicts_what_is_old(start: Start) -> None:
    node = await start(bytes_max=len(DATA))
    node.keep(b"old")
    node.clock.now_s += LEASE_S
    await node.take(node.put_file(DATA))
    await node.settled()
    assert node.files == {HASH}


async def test_results_taken_over_at_the_same_time_have_room_for_each(start: Start) -> None:
    node = await start(bytes_max=2 * len(DATA) - 1)
    directories = [ResultDirectory(node.store.incoming, "executor") for _ in range(2)]
    files = [Path(directory.path, "result") for directory in directories]
    for number, path in enumerate(files):
        path.write_bytes(DATA[1:] + bytes([number]))
    taken = await asyncio.gather(
        *(
            node.store.take(directory, x.File(str(path), len(DATA), ""), "job")
            for directory, path in zip(directories, files, strict=True)
        ),
        return_exceptions=True,
    )
    assert sorted(type(one).__name__ for one in taken) == ["File", "NoRoom"]
    for directory in directories:
        directory.close()


async def test_a_full_disk_fails_a_result_that_has_to_be_copied(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(result_files, "_write", full)
    file = node.put_file(DATA)
    with Path(file.path).open("ab"), pytest.raises(NoRoom, match="it cannot be written: No space left on device"):
        await node.take(file)
    assert names(node.results.path) == node.partial == []


async def test_data_that_find_no_room_are_counted_and_the_log_says_where_and_how_much_was_wanted(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    one, other = await start(), await start()
    caplog.set_level(logging.INFO)
    ref = one.keep(DATA)
    monkeypatch.setattr(blob_store._Arrival, "_absorb", full)
    assert await other.fetch(ref) == "no room: it cannot be written: No space left on device"
    monkeypatch.setattr(result_files, "_write", full)
    file = other.put_file(DATA)
    with Path(file.path).open("ab"), pytest.raises(NoRoom):
        await other.take(file)
    counters = other.store.counters
    assert (counters.no_room, counters.fetch_failures) == (2, 0)
    where, why = Path(other.store.incoming).parent, "it cannot be written: No space left on device"
    assert [
        (record.levelname, record.getMessage()) for record in caplog.records if "no room" in record.getMessage()
    ] == [
        ("WARNING", f"no room in {where} for {what} of {len(DATA)} bytes: {why}") for what in ("an input", "a result")
    ]


async def test_that_users_have_their_shares_is_counted_and_is_no_warning(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = await start(), await start(bytes_max=10)
    caplog.set_level(logging.INFO)
    await other.fetch(one.keep(DATA))
    assert (other.store.counters.no_room, other.store.counters.fetch_failures) == (1, 0)
    (record,) = [record for record in caplog.records if "no room" in record.getMessage()]
    assert record.levelno == logging.INFO and "blob_bytes_max = 10" in record.getMessage()


async def being_hashed(node: Node, monkeypatch: pytest.MonkeyPatch) -> asyncio.Future[Any]:
    """A result that the node takes over, and of which it has read some: it is read in many batches."""
    monkeypatch.setattr(result_files, "BATCH_BYTES", 1000)
    taking = asyncio.ensure_future(node.take(node.put_file(DATA)))
    await until(lambda: node.store.table.bytes_reserved > 0, every_s=0)
    return taking


async def test_a_result_that_is_being_hashed_when_the_store_stops_is_no_error(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start()
    taking = await being_hashed(node, monkeypatch)
    await node.store.stop()
    with pytest.raises(NoRoom, match=blob_store.STOPPED):
        await taking


async def test_a_result_that_nobody_waits_for_any_more_leaves_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start()
    taking = await being_hashed(node, monkeypatch)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert (node.store.table.bytes_reserved, node.files) == (0, set())


async def test_results_are_unfetched_until_they_are_served_whole_or_nobody_holds_them(
    node: Node, session: aiohttp.ClientSession
) -> None:
    node.keep(b"first")
    second = node.keep(b"second")
    await blobs.upload(session, node.address, ACCESS, DATA, HASH)  # no result
    assert node.store.unfetched == 2
    async with session.get(url(node, second.hash), headers=AUTHORIZED | {"Range": "bytes=0-1"}) as response:
        assert await response.read() == b"se"
    assert node.store.unfetched == 2
    await blobs.download(session, second, ACCESS)
    await until(lambda: node.store.unfetched == 1, every_s=0.001)
    node.clock.now_s += LEASE_S
    assert node.store.unfetched == 0


async def test_what_is_evicted_is_not_unfetched(start: Start) -> None:
    node = await start(bytes_max=10)
    for data in (b"1234567890", b"0987654321"):
        node.keep(data)
        assert node.store.unfetched == 1
        node.clock.now_s += LEASE_S
    assert len(node.store._unfetched) == 1


# ---- time, and the directory -------------------------------------------------------------------


async def test_what_expires_is_deleted(session: aiohttp.ClientSession) -> None:
    store = BlobStore(BlobTable(1000, retention_s=0.01, lease_s=0.01), session, lambda: OPEN, Clock())
    store.start()
    results = ResultDirectory(store.incoming, "executor")
    path = Path(results.path, "result")
    path.write_bytes(b"12345")
    kept = await store.take(results, x.File(str(path), 5, ""), "job")
    store.unpin("job")
    await until(lambda: kept.hash not in store.table, every_s=0.001)
    await until(lambda: not Path(kept.path).exists(), every_s=0.001)
    results.close()
    await store.stop()


async def test_a_file_of_what_is_not_here(node: Node) -> None:
    with pytest.raises(KeyError):
        node.store.file(HASH)


def store_in(directory: str, session: aiohttp.ClientSession) -> BlobStore:
    return BlobStore(BlobTable(1000, RETENTION_S, LEASE_S), session, lambda: OPEN, SetClock(), directory)


async def test_a_temporary_directory_goes_with_the_store(
    session: aiohttp.ClientSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, second = store_in("", session), store_in("", session)
    first.start()
    second.start()
    assert len(list(tmp_path.iterdir())) == 2
    assert Path(first.incoming).is_dir()
    await first.stop()
    await second.stop()
    assert list(tmp_path.iterdir()) == []


async def test_what_a_store_left_that_died_is_deleted_and_nothing_else(
    session: aiohttp.ClientSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    died, lives, begins = (tmp_path / f"{blob_store.PREFIX}-{name}" for name in ("died", "lives", "begins"))
    for path in (died, lives, begins):
        path.mkdir()
        (path / "blob").touch()
    (died / "lock").touch()
    lock = blob_store._try_lock(str(lives), create=True)
    assert lock is not None
    store = store_in("", session)
    store.start()
    assert not died.exists()
    assert (lives / "blob").exists()
    assert (begins / "blob").exists()  # it has no lock yet
    os.close(lock)
    await store.stop()


async def test_a_given_directory_is_cleared_of_what_is_ours_only(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (tmp_path / "mine").touch()
    left = tmp_path / blob_store.PREFIX
    (left / "incoming").mkdir(parents=True)
    (left / "incoming" / "result").touch()
    (left / HASH).touch()
    store = store_in(str(tmp_path), session)
    store.start()
    assert names(left) == ["incoming", "lock", "partial"]
    assert names(left / "incoming") == []
    await store.stop()
    assert (tmp_path / "mine").exists()
    assert names(left) == ["lock"]


async def test_a_directory_has_one_user(session: aiohttp.ClientSession, tmp_path: Path) -> None:
    first, second = store_in(str(tmp_path), session), store_in(str(tmp_path), session)
    first.start()
    with pytest.raises(InvalidOption, match=r"blob_dir: .* allowed: a directory that no other node monitor uses"):
        second.start()
    await first.stop()
    second.start()
    await second.stop()


@pytest.mark.parametrize("directory", ["{tmp}/file", "{tmp}/file/sub", "{tmp}/linked", "/proc/none"])
async def test_a_directory_that_cannot_be_is_told(
    session: aiohttp.ClientSession, tmp_path: Path, directory: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / blob_store.PREFIX).symlink_to(tmp_path)
    store = store_in(directory.replace("{tmp}", str(tmp_path)), session)
    with pytest.raises(InvalidOption, match="blob_dir: "):
        store.start()
    await store.stop()


async def test_a_client_is_told_what_is_wrong_with_the_node(node: Node, session: aiohttp.ClientSession) -> None:
    with pytest.raises(LinkError, match=r"401: the header Authorization"):
        await blobs.upload(session, node.address, Access("w" * 32), DATA, HASH)
