"""Removes directories in which tasks could put anything: by descriptors, in bounded memory, and off the event loop.

`shutil.rmtree` calls itself for each level, and ends with a `RecursionError` after some hundred of them. Here a
directory within another is first moved up to the top, so that there are never more than two levels, and as many
descriptors and listings, at hand. No link is followed: a name is only used relative to a directory that is open, and
that was opened as a directory and no link.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import math
import os
import time
from collections import deque
from collections.abc import Generator, Iterator

from sparrow_py.logs.line_interval import LineInterval

log = logging.getLogger("sparrow.node_monitor.removal")
ENTRIES_PER_TURN = 2000
"""Things removed of one directory before the next has its turn."""
END_TIMEOUT_S = 30.0
"""Seconds for which a node monitor that ends removes what is left; the next that starts removes the rest."""
NAME_BYTES = 8
"""Random bytes in the names of what is moved up: nobody has put something there."""
_seldom = LineInterval()


def remove_tree(path: str, timeout_s: float = math.inf, keep: str = "") -> None:
    """Remove what is at the path, and if it is a directory all that is in it.

    keep: the name of a file in the directory that stays, and the directory with it. What cannot be removed, or not
    in so many seconds, is logged and left.
    """
    deadline_s = time.monotonic() + timeout_s
    steps = removal(path, keep)
    for _ in steps:
        if time.monotonic() > deadline_s:
            steps.close()
            _warn(path, f"it takes longer than {timeout_s:g} s")


def removal(path: str, keep: str = "") -> Generator[None]:
    """As `remove_tree`, with a step for each thing that is looked at; it may be closed at each."""
    try:
        top = _opened(path)
        if top is None:
            os.unlink(path)  # noqa: PTH108
            return
        try:
            yield from _emptied(top, keep)
        finally:
            os.close(top)
        if not keep:
            os.rmdir(path)  # noqa: PTH106
    except FileNotFoundError:
        pass
    except OSError as error:
        _warn(path, error)


def _emptied(top: int, keep: str) -> Iterator[None]:
    """Remove all that is in the directory; `OSError` if something stays whatever is tried.

    It is listed again until a listing has nothing that can be removed: what is moved up may or may not show in one.
    Each directory is moved once at most, so that this ends.
    """
    prefix = os.urandom(NAME_BYTES).hex()
    names = (f"{prefix}-{number}" for number in itertools.count())
    while True:
        progress, failure = False, None
        with os.scandir(top) as entries:
            for entry in entries:
                if entry.name == keep:
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        for moved in _taken_apart(top, entry.name, names):
                            progress |= moved
                            yield
                        os.rmdir(entry.name, dir_fd=top)
                    else:
                        os.unlink(entry.name, dir_fd=top)
                    progress = True
                except FileNotFoundError:
                    progress = True
                except OSError as error:
                    failure = error
                yield
        if not progress:
            if failure is not None:
                raise failure
            return


def _taken_apart(top: int, name: str, names: Iterator[str]) -> Iterator[bool]:
    """Remove the files of a directory in `top`, and move its directories to there; for each whether that went well."""
    inner = _opened(name, top)
    if inner is None:  # Something else has taken its place.
        os.unlink(name, dir_fd=top)
        return
    try:
        with os.scandir(inner) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        os.rename(entry.name, next(names), src_dir_fd=inner, dst_dir_fd=top)
                    else:
                        os.unlink(entry.name, dir_fd=inner)
                    yield True
                except OSError:  # It stays, and so will the directory, which is told.
                    yield False
    finally:
        os.close(inner)


def stale(path: str, age_s: float) -> Generator[None]:
    """Remove files in the directory that were not written to for so long, with a step for each that is looked at."""
    oldest_s = time.time() - age_s
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest_s:
                        os.unlink(entry.name, dir_fd=directory)
                yield
    finally:
        os.close(directory)


def _opened(name: str, parent: int | None = None) -> int | None:
    """The directory, open, and from now on ours alone if we may do that: who still runs puts nothing more into it.

    None if it is no directory.
    """
    try:
        directory = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    try:
        with contextlib.suppress(OSError):
            itself = f"/proc/self/fd/{directory}"
            if os.fstat(directory).st_uid != os.geteuid():
                os.chown(itself, os.geteuid(), -1)
            os.chmod(itself, 0o700)  # noqa: PTH101
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    finally:
        os.close(directory)


def _warn(path: str, reason: object) -> None:
    times = _seldom.happened(time.monotonic())
    if times:
        log.warning("%s cannot be removed, or not all that is in it: %s (%d such failures)", path, reason, times)


class Remover:
    """Removes directories in a thread, a part of each in turn."""

    def __init__(self) -> None:
        self._waiting: deque[Generator[None]] = deque()
        self._work: asyncio.Task[None] | None = None
        self._stopped = False

    def remove(self, path: str) -> None:
        """Remove what is there, some time; what cannot be is logged and left."""
        self._begin(removal(path))

    def sweep(self, path: str, age_s: float) -> None:
        """Remove the files in this directory that were not written to for so long."""
        self._begin(stale(path, age_s))

    def _begin(self, work: Generator[None]) -> None:
        self._waiting.append(work)
        if self._work is None:
            self._work = asyncio.create_task(self._remove_all())

    async def done(self) -> None:
        """Wait until there is nothing to remove."""
        if self._work is not None:
            await asyncio.wait({self._work})

    async def stop(self) -> None:
        """Remove no more: what is left is left."""
        self._stopped = True
        await self.done()
        for tree in self._waiting:
            tree.close()
        self._waiting.clear()

    async def _remove_all(self) -> None:
        try:
            while self._waiting and not self._stopped:
                tree = self._waiting.popleft()
                if await asyncio.to_thread(_turn, tree):
                    self._waiting.append(tree)
        finally:
            self._work = None


def _turn(tree: Generator[None]) -> bool:
    """Remove a part of it; whether something may be left."""
    return sum(1 for _ in itertools.islice(tree, ENTRIES_PER_TURN)) == ENTRIES_PER_TURN
