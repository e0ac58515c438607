"""What is opened to single accounts: files of large data, and the directories on the way to them and to sockets."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_monitor.blobs.blob_store import BlobStore
from node_monitor.blobs.result_files import ResultDirectory
from node_monitor.executors.socket_directory import SocketDirectory
from node_monitor.host import access_lists
from node_monitor.host.os_account import Account
from sparrow_py.errors import InvalidOption
from sparrow_py.executors.executor_protocol import File
from tests.support.stores import store_in

READERS = {"a": 12001, "b": 12002}
DATA = b"large"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory with access lists."""
    with tempfile.TemporaryDirectory(prefix="s") as name:
        try:
            access_lists.allow(name, [12000], access_lists.ENTER, owner=7)
        except OSError as error:
            pytest.skip(f"no access lists here: {error}")
        access_lists.remove(name)
        yield Path(name)


def accounts_of(path: Path | str) -> list[int]:
    """The user ids that the list of it names."""
    entries = os.getxattr(path, access_lists.ATTRIBUTE)[4:]
    return [uid for tag, _, uid in access_lists._ENTRY.iter_unpack(entries) if tag == access_lists._ACCOUNT]


def test_a_list_names_accounts_and_nobody_else(folder: Path) -> None:
    path = folder / "file"
    path.touch(0o400)
    access_lists.allow(str(path), [12002, 12001], access_lists.READ, owner=access_lists.READ)
    assert accounts_of(path) == [12001, 12002] and access_lists.exist(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o440, "the mask is where the group's rights were"
    access_lists.remove(str(path))
    assert not access_lists.exist(str(path))
    access_lists.remove(str(path))


async def take(store: BlobStore, content: bytes) -> str:
    """The hash of a result that an executor gave."""
    directory = ResultDirectory(store.incoming, "executor")
    path = Path(directory.path, "result")
    path.write_bytes(content)
    try:
        return (await store.take(directory, File(str(path), len(content), ""), "job")).hash
    finally:
        directory.close()


async def test_a_blob_is_opened_to_whose_tasks_need_it_and_its_successor_to_nobody(folder: Path) -> None:
    store = store_in(folder, readers=READERS)
    root = Path(store.incoming).parent
    assert accounts_of(root) == accounts_of(store.incoming) == sorted(READERS.values())
    hash = await take(store, DATA)
    path = store.path(hash)
    assert not access_lists.exist(path) and stat.S_IMODE(Path(path).stat().st_mode) == 0o400
    assert store.file_for(hash, "").path == path and not access_lists.exist(path), "our own"
    for account, uids in (("b", [12002]), ("b", [12002]), ("a", [12001, 12002])):
        assert store.file_for(hash, account) == store.file(hash)
        assert accounts_of(path) == uids
    Path(path).unlink()
    assert not store.has(hash)
    assert await take(store, DATA) == hash
    assert not access_lists.exist(path)
    store.file_for(hash, "a")
    assert accounts_of(path) == [12001]
    await store.stop()


async def test_lists_of_another_time_are_gone(folder: Path) -> None:
    store = store_in(folder, readers=READERS)
    root = Path(store.incoming).parent
    await store.stop()
    store = store_in(folder)
    assert not access_lists.exist(str(root)) and stat.S_IMODE(root.stat().st_mode) == 0o700
    await store.stop()


def refuse(*_: Any, **__: Any) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


async def test_a_file_system_without_lists_is_no_place_for_several_accounts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_lists, "allow", refuse)
    with pytest.raises(InvalidOption, match=r"blob_dir: .* one on a file system with access lists \(POSIX ACL\)"):
        store_in(folder / "blobs", readers=READERS)
    await store_in(folder / "one", readers_gid=os.getegid()).stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give sockets away")
def test_each_account_has_a_socket_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = [Account(name, uid, 12000, (12000,), "/") for name, uid in READERS.items()]  # In one group.
    path = folder / "sockets"
    directory = SocketDirectory(str(path), accounts)
    sockets = [Path(directory.socket_path_of(account)) for account in accounts]
    for socket in (*sockets, Path(directory.socket_path)):
        socket.touch()
    directory.open_to_executors()
    assert [(socket.stat().st_uid, stat.S_IMODE(socket.stat().st_mode)) for socket in sockets] == [
        (12001, 0o600), (12002, 0o600),
    ]  # fmt: skip
    assert Path(directory.socket_path).stat().st_uid == 0 and accounts_of(path) == [12001, 12002]
    os.close(directory._lock)  # It has died.
    directory = SocketDirectory(str(path), accounts)
    assert sorted(entry.name for entry in path.iterdir()) == ["lock"] and not access_lists.exist(str(path))
    Path(directory.socket_path).touch()
    for socket in sockets:
        socket.touch()
    monkeypatch.setattr(access_lists, "allow", refuse)
    with pytest.raises(InvalidOption, match=r"socket_dir: .* one on a file system with access lists"):
        directory.open_to_executors()
    directory.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
