"""Generated Python sources on disk, beside which numba keeps what it made of them.

A source's file has the hash of its text for a name, so what is kept never is of another text. numba keeps pickles,
which run as code when they are read: the directory belongs to the user, and no one else may write there.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

SOURCES_MAX = 1_000
"""Files that are kept; the oldest go first."""
SUBFOLDER = Path("sparrow-py", "dataflow")
CACHE_VARIABLE = "XDG_CACHE_HOME"


@functools.cache
def cache_directory() -> Path:
    """Where sources are: in the user's cache, or where that cannot be, in a directory of this process."""
    try:
        home = os.environ.get(CACHE_VARIABLE)
        directory = (Path(home) if home else Path.home() / ".cache") / SUBFOLDER
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(directory, os.W_OK):
            return directory
    except (OSError, RuntimeError):  # The latter if the user has no home.
        pass
    return Path(_of_this_process().name)


@functools.cache
def _of_this_process() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sparrow-dataflow-", ignore_cleanup_errors=True)


def keep(source: str) -> Path:
    """The file that has this source. It is written once, so that it keeps its time, which numba goes by."""
    directory = cache_directory()
    path = directory / f"s{sha256(source.encode()).hexdigest()[:32]}.py"
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=directory, suffix=".new") as new:
            new.write(source)
            new.flush()
            with contextlib.suppress(FileExistsError):  # Another process was first.
                os.link(new.name, path)
        _forget_oldest(directory)
    return path


def _forget_oldest(directory: Path) -> None:
    """Remove sources above the maximum, and what numba made of them. Who has loaded one does not need it."""
    sources = [(path.stat().st_mtime_ns, path) for path in directory.glob("s*.py")]
    for _, path in sorted(sources)[: max(len(sources) - SOURCES_MAX, 0)]:
        for made in [path, *directory.glob(f"__pycache__/{path.stem}.*")]:
            made.unlink(missing_ok=True)


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Of the processes that compile a source, one does; the others wait, and find what it made."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
