"""Bytes that are too large for a frame between a node monitor and its executors go in files on their machine.

Every worker imports this module, and few use it. So modules that take long to import are imported when they are
needed, and pathlib is not used.
"""

# ruff: noqa: PTH108, PTH118, PTH123
from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import TypeVar

from sparrow_py.errors import LinkError, shown
from sparrow_py.executors.executor_protocol import INLINE_BYTES_MAX, Data, File

NAME_BYTES = 16
"""Random bytes in a file's name."""
T = TypeVar("T")
Content = bytes | mmap.mmap


def store(value: bytes, directory: str, *, inline_bytes_max: int = INLINE_BYTES_MAX) -> Data:
    """`value` as a message carries it: the bytes themselves, or a new file in this directory if they are more than
    `inline_bytes_max`.

    The file is complete, and only this user can read it. The receiver owns the file, and computes its hash. `OSError`
    if the file cannot be written: then nothing is left of it.
    """
    if len(value) <= inline_bytes_max:
        return value
    path = os.path.join(directory, os.urandom(NAME_BYTES).hex())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(value)
    except BaseException:
        os.unlink(path)
        raise
    return File(path, len(value), "")


def load(data: Data) -> Content:
    """The bytes that a message carries, or a memory map of the file that the message names; the caller closes the map.

    `OSError` if the file cannot be read, `LinkError` if its size is not the one that the message states.
    """
    if type(data) is not File:
        assert isinstance(data, bytes)
        return data
    with open(data.path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size != data.size:
            raise LinkError(f"the file {shown(data.path)} has {size} bytes; {data.size} were announced")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


def using(data: Data, use: Callable[[Content], T]) -> T:
    """`use(load(data))`. `use` must keep no view of the bytes: a file is closed afterwards."""
    content = load(data)
    if isinstance(content, bytes):
        return use(content)
    with content:
        return use(content)


def read(data: Data) -> bytes:
    """All the bytes. Errors are those of `load`."""
    return data if type(data) is bytes else using(data, bytes)
