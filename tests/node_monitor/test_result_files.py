"""A result's file becomes the node monitor's: whatever is done to it, or put in its place, between two steps."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node_monitor.blobs import result_files
from node_monitor.blobs.result_files import ResultDirectory, Taking
from node_monitor.host.os_account import Account
from sparrow_py.errors import LinkError
from sparrow_py.executors.executor_protocol import File
from tests.support.unprivileged import NOBODY, SOMEBODY, takes_root

DATA = b"a result" * 1000
OURS = os.geteuid()


class Rig:
    """An executor's directory, of another user where root runs this, and a directory of ours beside it."""

    def __init__(self, folder: Path) -> None:
        account = Account("nobody", NOBODY, NOBODY, (NOBODY,), "/") if OURS == 0 else None
        (folder / "incoming").mkdir()
        self.ours = folder / "ours"
        self.ours.mkdir(0o700)
        self.outside = folder / "outside"
        self.outside.mkdir()
        (self.outside / "secret").write_bytes(DATA)
        self.directory = ResultDirectory(str(folder / "incoming"), "executor", account)
        self.theirs = Path(self.directory.path)
        self.uid = self.directory.uid

    def put(self, name: str = "result", content: bytes = DATA) -> Path:
        """A file as the executor would write it."""
        path = self.theirs / name
        path.write_bytes(content)
        self.give(path)
        return path

    def give(self, path: Path) -> Path:
        """It is the executor's."""
        os.chown(path, self.uid, -1, follow_symlinks=False)
        return path

    def taking(self, path: Path | str, size: int = len(DATA), gid: int | None = None) -> Taking:
        return Taking(self.directory, File(str(path), size, ""), str(self.ours / "taken"), gid)

    def check_that_nothing_was_taken(self) -> None:
        """What is not the executor's is as it was, and nothing of it is ours."""
        assert [path.name for path in self.outside.iterdir()] == ["secret"]
        secret = self.outside / "secret"
        assert (secret.read_bytes(), secret.stat().st_uid) == (DATA, OURS)
        assert list(self.ours.iterdir()) == []


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.directory.close()


def take(taking: Taking) -> str:
    """All steps; the hash."""
    try:
        taking.begin()
        while not taking.go_on():
            pass
        return taking.hash
    finally:
        taking.close()


def before(step: str, then: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this happen once, right before a step."""
    steps, left = getattr(result_files, step), [then]

    def interrupted(*arguments: Any) -> Any:
        if left:
            left.pop()()
        return steps(*arguments)

    monkeypatch.setattr(result_files, step, interrupted)


@pytest.mark.parametrize("size", [0, 1, result_files.READ_BYTES, 2 * result_files.READ_BYTES + 1])
def test_a_file_is_moved_hashed_and_nobody_elses(rig: Rig, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "BATCH_BYTES", result_files.READ_BYTES + 10)
    content = os.urandom(size)
    path = rig.put(content=content)
    inode = path.stat().st_ino
    taking = rig.taking(path, size)
    assert take(taking) == hashlib.sha256(content).hexdigest()
    found = (rig.ours / "taken").stat()
    assert (rig.ours / "taken").read_bytes() == content
    assert (found.st_ino, found.st_uid, stat.S_IMODE(found.st_mode)) == (inode, OURS, 0o400)
    assert (list(rig.theirs.iterdir()), taking.copied) == ([], False)


def test_the_group_of_the_readers_may_read_it(rig: Rig) -> None:
    takes_root()
    take(rig.taking(rig.put(), gid=NOBODY))
    found = (rig.ours / "taken").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, NOBODY, 0o440)


# ---- what it may not be ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("link", "cannot be opened: Too many levels of symbolic links"),
        ("broken", "cannot be opened: Too many levels of symbolic links"),
        ("link to all/secret", "is not in"),
        ("../outside/secret", "is not in"),
        ("..", "is not in"),
        (".", "is not in"),
        ("", "is not in"),
        ("none", "cannot be opened: No such file or directory"),
        ("n" * 300, "cannot be opened: File name too long"),
        ("\0", "embedded null"),
        ("\ud800", "cannot be opened: "),
        ("directory", "is not a plain file"),
        ("pipe", "is not a plain file"),
        ("shorter", "is not a plain file of 8000 bytes"),
        ("second name", "has 2 names; allowed: 1"),
    ],
)
def test_what_is_no_plain_file_in_the_directory_stays_where_it_is(rig: Rig, name: str, reason: str) -> None:
    (rig.theirs / "link").symlink_to(rig.outside / "secret")
    (rig.theirs / "broken").symlink_to("nowhere")
    (rig.theirs / "link to all").symlink_to(rig.outside)
    (rig.theirs / "directory").mkdir()
    os.mkfifo(rig.theirs / "pipe")
    rig.put("shorter", DATA[1:])
    (rig.theirs / "second name").hardlink_to(rig.put("first name"))
    theirs = sorted(os.listdir(rig.theirs))  # noqa: PTH208
    with pytest.raises(LinkError, match="the result's file '") as caught:
        take(rig.taking(f"{rig.theirs}/{name}"))
    assert reason in str(caught.value)
    assert sorted(os.listdir(rig.theirs)) == theirs  # noqa: PTH208
    rig.check_that_nothing_was_taken()


@pytest.mark.parametrize("path", ["/etc/passwd", "result", "", "/", "{theirs}/./result"])
def test_a_path_elsewhere_or_written_otherwise_is_refused(rig: Rig, path: str) -> None:
    rig.put()
    with pytest.raises(LinkError, match="is not in "):
        take(rig.taking(path.replace("{theirs}", str(rig.theirs))))
    rig.check_that_nothing_was_taken()


@pytest.mark.parametrize("owner", [0, SOMEBODY])
def test_a_file_of_another_user_is_refused(rig: Rig, owner: int) -> None:
    takes_root()
    path = rig.put()
    os.chown(path, owner, -1)
    with pytest.raises(LinkError, match=f"belongs to user {owner}; allowed: {NOBODY}"):
        take(rig.taking(path))
    assert path.stat().st_uid == owner
    rig.check_that_nothing_was_taken()


# ---- between the steps -----------------------------------------------------------------------

IN_ITS_PLACE = ["link", "link to a directory", "directory", "another file", "file of ours", "pipe"]


def put_in_its_place(rig: Rig, path: Path, kind: str) -> None:
    """The file's name leads to something else now; the file itself is still in the directory."""
    path.rename(rig.theirs / "aside")
    if kind == "link":
        path.symlink_to(rig.outside / "secret")
    elif kind == "link to a directory":
        path.symlink_to(rig.outside)
    elif kind == "directory":
        (path / "a" / "b").mkdir(parents=True)
    elif kind == "another file":
        rig.put()
    elif kind == "file of ours":
        path.hardlink_to(rig.outside / "secret")
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("kind", IN_ITS_PLACE)
def test_what_is_put_in_its_place_before_it_is_moved_goes_back(
    rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with the executor's directory; nothing is done to what it leads to."""
    path = rig.put()
    before("_move", lambda: put_in_its_place(rig, path, kind), monkeypatch)
    with pytest.raises(LinkError, match="was exchanged for another while it was taken over"):
        take(rig.taking(path))
    assert len(list(rig.theirs.iterdir())) == 2
    assert (rig.theirs / "aside").stat().st_uid == rig.uid
    rig.check_that_nothing_was_taken()


def test_what_cannot_go_back_is_removed_and_what_it_leads_to_is_not(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rig.put()

    def exchange() -> None:
        path.unlink()
        path.mkdir()
        (path / "link").symlink_to(rig.outside)

    def leave(taking: Taking) -> None:
        rig.theirs.rmdir()
        make_ours(taking)

    make_ours = Taking._make_ours
    monkeypatch.setattr(Taking, "_make_ours", leave)
    before("_move", exchange, monkeypatch)
    with pytest.raises(LinkError, match="was exchanged"):
        take(rig.taking(path))
    rig.check_that_nothing_was_taken()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rig: (rig.theirs / "other").hardlink_to(rig.ours / "taken"), "has 2 names"),
        (lambda rig: os.truncate(rig.ours / "taken", 10), "is not a plain file of 8000 bytes"),
    ],
    ids=["another name", "another size"],
)
def test_what_is_done_to_it_before_it_is_closed_to_others_is_seen(
    rig: Rig, change: Callable[[Rig], None], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who has it open, or has made a link to it."""
    path = rig.put()
    before("close_to_others", lambda: change(rig), monkeypatch)
    with pytest.raises(LinkError, match=reason):
        take(rig.taking(path))
    assert all(found.stat().st_uid == rig.uid for found in rig.theirs.iterdir()), "it is theirs again"
    rig.check_that_nothing_was_taken()


def test_rights_that_its_owner_gave_to_others_are_gone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rig.put()
    before("close_to_others", lambda: (rig.ours / "taken").chmod(0o4777), monkeypatch)
    take(rig.taking(path))
    assert stat.S_IMODE((rig.ours / "taken").stat().st_mode) == 0o400


# ---- who could still write -------------------------------------------------------------------


def still_open(path: Path) -> Callable[[bytes], None]:
    descriptor = os.open(path, os.O_WRONLY)
    os.set_inheritable(descriptor, False)
    return lambda content: (os.pwrite(descriptor, content, 0), None)[1]


def still_mapped(path: Path) -> Callable[[bytes], None]:
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), len(DATA))

    def write(content: bytes) -> None:
        mapped[: len(content)] = content

    return write


@pytest.mark.parametrize("how", [still_open, still_mapped])
def test_a_file_that_somebody_can_still_write_to_is_copied(
    rig: Rig, how: Callable[[Path], Callable[[bytes], None]]
) -> None:
    """Whatever is written later, the hash is that of what was taken over."""
    path = rig.put()
    write = how(path)
    taking = rig.taking(path)
    hash_ = take(taking)
    write(b"planted!")
    taken = (rig.ours / "taken").read_bytes()
    assert (taking.copied, taken, hash_) == (True, DATA, hashlib.sha256(DATA).hexdigest())
    assert stat.S_IMODE((rig.ours / "taken").stat().st_mode) == 0o400
    assert [found.name for found in rig.ours.iterdir()] == ["taken"]
    assert list(rig.theirs.iterdir()) == []


def test_what_is_written_while_it_is_copied_is_in_the_hash(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "BATCH_BYTES", 4000)
    path = rig.put()
    write = still_mapped(path)
    taking = rig.taking(path)
    taking.begin()
    assert not taking.go_on()
    write(b"x" * len(DATA))
    assert taking.go_on()
    taking.close()
    taken = (rig.ours / "taken").read_bytes()
    assert taken == DATA[:4000] + b"x" * 4000
    assert taking.hash == hashlib.sha256(taken).hexdigest()


def test_a_file_that_is_made_shorter_while_it_is_copied_is_refused(rig: Rig) -> None:
    path = rig.put()
    with path.open("r+b") as file:
        taking = rig.taking(path)
        taking.begin()
        file.truncate(10)
        with pytest.raises(LinkError, match="has become shorter than 8000 bytes"):
            taking.go_on()
        taking.close()
    assert not (rig.ours / "taken-copy").exists()


def test_a_file_on_a_file_system_without_leases_is_copied(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files.fcntl, "F_SETLEASE", -1)
    taking = rig.taking(rig.put())
    assert take(taking) == hashlib.sha256(DATA).hexdigest()
    assert taking.copied


def test_who_breaks_a_lease_does_not_end_us(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells whoever has one, by a signal that would."""
    path = rig.put()
    reader = os.open(path, os.O_RDONLY)
    monkeypatch.setattr(result_files.fcntl, "F_UNLCK", result_files.fcntl.F_RDLCK)
    assert result_files.leased(reader)
    writer = threading.Thread(target=lambda: os.close(os.open(path, os.O_WRONLY)))
    writer.start()
    while result_files.fcntl.fcntl(reader, result_files.fcntl.F_GETLEASE) == result_files.fcntl.F_RDLCK:
        assert writer.is_alive()
    os.close(reader)
    writer.join()


def test_one_that_is_closed_meanwhile_goes_on_no_more(rig: Rig) -> None:
    taking = rig.taking(rig.put())
    taking.begin()
    taking.close()
    with pytest.raises(LinkError, match="is not wanted any more"):
        taking.go_on()


# ---- descriptors are short -------------------------------------------------------------------


def without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be opened by way of the module any more."""

    def fails(*_: Any, **__: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(result_files.os, "open", fails)


def test_a_file_that_cannot_be_opened_for_want_of_descriptors_is_deleted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = rig.put(), rig.put("other")
    with monkeypatch.context() as short:
        without_descriptors(short)
        with pytest.raises(OSError, match="Too many open files"):
            rig.taking(path).begin()
        assert not path.exists()
        with pytest.raises(LinkError, match="is not in"):
            rig.taking(rig.outside / "secret").begin()
    assert other.exists()
    rig.check_that_nothing_was_taken()


def test_a_directory_that_cannot_be_opened_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        without_descriptors(short)
        with pytest.raises(OSError, match="Too many open files"):
            ResultDirectory(str(tmp_path), "executor")
    assert list(tmp_path.iterdir()) == []
