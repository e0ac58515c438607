"""A file of results that one command at a time writes: stopped and started again, the command goes on from there."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sparrow_py.errors import InvalidOption


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, for reading and appending, for nobody else at the same time; `InvalidOption` if that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise InvalidOption("results", str(path), f"a file that can be written ({error.strerror})") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidOption("results", str(path), "a file that no other command is writing") from None
        yield file
