"""What a workflow makes between its jobs: Parquet files in a directory that all nodes see, and a manifest.

    STORE/<fingerprint>-<random>/
        manifest.json     what is done: renamed into place after each job, so it is whole
        token             random text, by which nodes show that they see this directory
        lock              held by the process that drives the run
        <n>-<random>.parquet

The fingerprint is that of the workflow and its tables, so `resume` finds what an interrupted run of the same has left.
Each attempt of a job writes files of its own, and renames each when it is whole; only files that the manifest names
count. Relations that nothing reads any more are deleted, and so is the directory of a run that has ended well. What
interrupted runs have left goes when there is more of it than `RUNS_KEPT_MAX`, oldest first.

Several accounts may share a store, as they share /tmp: a run's directory is its account's own, those of others are left
alone, and a store in which anybody could put something in the place of a run's directory is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.printing import printed
from frontends.workflow.mapping.sizes import TableSize
from frontends.workflow.running.errors import NothingToResume, StoreFull, StoreUnusable

STORE_VARIABLE = "SPARROW_WORKFLOW_STORE"
"""The environment variable that names the store, which else is a directory below the temporary one."""
STORE_BYTES_MAX_VARIABLE = "SPARROW_WORKFLOW_STORE_BYTES_MAX"
STORE_BYTES_MAX = 64 << 30
"""Bytes that one run may have in the store, unless the variable says otherwise."""
RUNS_KEPT_MAX = 16
"""Interrupted runs that a store keeps, for `resume`."""
MANIFEST_BYTES_MAX = 64 << 20
TOKEN_BYTES_MAX = 64
MANIFEST, TOKEN, LOCK = "manifest.json", "token", "lock"
FINGERPRINT_DIGITS = 16


class KeptRelation(msgspec.Struct, forbid_unknown_fields=True):
    """A relation that was made: its file within the run's directory, and its size. bytes: of the file; column_bytes:
    of the columns before compression, which plans go by."""

    file: str
    rows: int
    bytes: int
    column_bytes: dict[str, int] = {}

    @property
    def size(self) -> TableSize:
        return TableSize(self.rows, sum(self.column_bytes.values()), self.column_bytes)


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """What is done of a workflow. dag: what runs, as text: with rewrites; done: names of operators."""

    fingerprint: str
    dag: str
    done: list[str] = []
    relations: dict[str, KeptRelation] = {}


_decoder = msgspec.json.Decoder(Manifest)


def default_directory() -> Path:
    """The store that is used if none is named."""
    named = os.environ.get(STORE_VARIABLE)
    return Path(named) if named else Path(tempfile.gettempdir(), f"sparrow-workflow-{os.getuid()}")


def bytes_max() -> int:
    """Bytes that one run may have; `StoreUnusable` if the variable says no number."""
    text = os.environ.get(STORE_BYTES_MAX_VARIABLE, str(STORE_BYTES_MAX))
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise StoreUnusable(str(default_directory()), f"{STORE_BYTES_MAX_VARIABLE}={text}; a whole number from 1")
    return int(text)


def fingerprint(dag: Dag, marks: Mapping[str, str]) -> str:
    """Of the workflow as it is written and its tables, of each of which `marks` has what changes when it does."""
    found = hashlib.sha256(printed(dag).encode())
    for name in sorted(marks):
        found.update(f"\0{name}\0{marks[name]}".encode())
    return found.hexdigest()[:FINGERPRINT_DIGITS]


class RunStore:
    """The directory of one run, locked as long as it is open. Made by `new_run` or `resumed_run`."""

    def __init__(self, directory: Path, manifest: Manifest, lock: int, most: int) -> None:
        self.directory, self.manifest = directory, manifest
        self._lock, self._most = lock, most
        self.token = _read(directory / TOKEN).decode()

    def path(self, relation: str) -> Path:
        """The file of a relation that was made."""
        return self.directory / self.manifest.relations[relation].file

    def add(self, done: frozenset[str], made: Mapping[str, KeptRelation], needed: frozenset[str]) -> None:
        """A job has ended: note it, then delete what is not needed any more. `StoreFull` if that does not suffice."""
        before = self.manifest.relations
        kept = {name: one for name, one in (before | dict(made)).items() if name in needed}
        self.manifest = Manifest(
            self.manifest.fingerprint, self.manifest.dag, sorted({*self.manifest.done, *done}), kept
        )
        with as_unusable(self.directory):
            self._write()
        for one in {one.file for one in (*before.values(), *made.values())} - {one.file for one in kept.values()}:
            (self.directory / one).unlink(missing_ok=True)
        used = sum(one.bytes for one in kept.values())
        if used > self._most:
            raise StoreFull(str(self.directory), used, self._most)

    def _write(self) -> None:
        _write_whole(self.directory / MANIFEST, msgspec.json.encode(self.manifest))

    def close(self, *, delete: bool) -> None:
        """Let go of the directory. delete: what is in it is of no use any more."""
        if delete:
            shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)


def new_run(store: Path, mark: str, dag: Dag, most: int) -> RunStore:
    """A directory for a run of this DAG, whose workflow has this fingerprint."""
    with as_unusable(store):
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_safe(store)
        _prune(store)
        directory = store / f"{mark}-{secrets.token_hex(4)}"
        directory.mkdir(mode=0o700)
        lock = _locked(directory, new=True)
        assert lock is not None
        (directory / TOKEN).write_text(secrets.token_hex(16))
        made = RunStore(directory, Manifest(mark, printed(dag)), lock, most)
        made._write()
        return made


def resumed_run(store: Path, mark: str, most: int) -> RunStore:
    """The newest interrupted run with this fingerprint whose files are all there; `NothingToResume` if there is none.

    Directories of other accounts do not count: what is in the manifest names what to run.
    """
    with as_unusable(store):
        if store.is_dir():
            _check_safe(store)
        for directory in reversed(_runs(store, mark)):
            lock = _locked(directory)
            if lock is None:  # It runs.
                continue
            try:
                manifest = _decoder.decode(_read(directory / MANIFEST))
                whole = all((directory / one.file).stat().st_size == one.bytes for one in manifest.relations.values())
                if whole and manifest.fingerprint == mark and manifest.done:
                    return RunStore(directory, manifest, lock, most)
            except (OSError, msgspec.MsgspecError):
                pass  # A run that ended before it had a manifest, or whose manifest is of another version.
            os.close(lock)
    raise NothingToResume(str(store))


def _prune(store: Path) -> None:
    """Delete the oldest runs that nobody drives any more, but for the newest."""
    idle = []
    for directory in _runs(store):
        lock = _locked(directory)
        if lock is not None:
            idle.append((directory, lock))
    for place, (directory, lock) in enumerate(idle):
        if place < len(idle) - RUNS_KEPT_MAX:
            shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _runs(store: Path, mark: str = "") -> list[Path]:
    """Directories of this account's runs, oldest first."""
    if not store.is_dir():
        return []
    found = []
    for one in store.iterdir():
        if one.name.startswith(f"{mark}-" if mark else ""):
            with contextlib.suppress(FileNotFoundError):  # Another run ends just now.
                status = one.lstat()
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and (one / TOKEN).is_file():
                    found.append((status.st_mtime_ns, one))
    return [one for _, one in sorted(found)]


def _check_safe(store: Path) -> None:
    """`StoreUnusable` if any account may put something in the place of a run's directory. A group is trusted."""
    status = store.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise StoreUnusable(str(store), f"it belongs to user {status.st_uid}; name a directory of your own, or root's")
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        mode = stat.filemode(status.st_mode)
        raise StoreUnusable(str(store), f"all may rename what is in it ({mode}); chmod o-w, or chmod +t to share it")


def _locked(directory: Path, *, new: bool = False) -> int | None:
    """A descriptor that holds the run's lock; None if another process holds it, or has deleted the run."""
    try:
        lock = os.open(
            directory / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if new else 0), 0o600
        )
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MANIFEST_BYTES_MAX + 1)
    if len(content) > MANIFEST_BYTES_MAX:
        raise StoreUnusable(str(path), f"more than {MANIFEST_BYTES_MAX:,} bytes")
    return content


def _write_whole(path: Path, content: bytes) -> None:
    """Beside the path, then renamed."""
    beside = path.with_suffix(".partial")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


@contextlib.contextmanager
def as_unusable(store: Path) -> Iterator[None]:
    """Within the block an `OSError` becomes `StoreUnusable`."""
    try:
        yield
    except OSError as error:
        raise StoreUnusable(str(store), f"it cannot be used: {error}") from None
