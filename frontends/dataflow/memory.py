"""Memory that processes of a machine can hand to each other: arrays in anonymous files (memfd), mapped.

All pages are there when an array is made (`posix_fallocate`), and a file cannot shrink (a seal): so want of memory is
an error here, and never a signal when an array is touched. A file is gone when the last mapping and descriptor of it
are, however a process ends; nothing is left in a directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import math
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from frontends.dataflow.encoding import INLINE_BYTES_MAX, Bytes
from frontends.dataflow.errors import MemoryShort, ProtocolError
from frontends.dataflow.free_list import FreeList
from frontends.dataflow.free_memory import free_bytes

OWN_FILES_MAX = 512
"""Arrays of a process that keep a descriptor of a file of their own. Others lie in arenas, many in one file."""
ARENA_BYTES_MIN = 1 << 20
ARENA_BYTES_MAX = 64 << 20
"""Of an arena, unless one piece needs more. Each is twice as large as the one before."""
ASKED_BYTES_MIN = 1 << 20
"""From which on it is asked how much is free, before the kernel is."""
SPARED_BYTES = 128 << 20
"""Of what is free, left for others: the kernel ends a process when nothing is left, also while it only allocates."""
POPULATED_BYTES = 4 << 20
"""Of memory without a file, made by one system call: other threads that map memory wait meanwhile."""
_POPULATE_WRITE = 23
"""`MADV_POPULATE_WRITE` of Linux 5.14, which Python does not name."""
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_MAP_FAILED = ctypes.c_void_p(-1).value


def _madvise(address: int, size: int, advice: int) -> int:
    """The number of the error, 0 if there is none."""
    return ctypes.get_errno() if _libc.madvise(address, size, advice) else 0


class Mapped:
    """A file in this process's memory, or memory without one, until the last array over it is gone.

    Python's own `mmap` keeps a second descriptor of each file.
    """

    __slots__ = ("__weakref__", "_memory", "address", "descriptor", "handed_over", "size", "used")

    def __init__(self, memory: Memory, descriptor: int, size: int, used: int, flags: int = 0) -> None:
        """Map `size` bytes, a multiple of the page size, of which arrays use `used`. The descriptor is ours then; below
        0 it is memory without a file."""
        flags |= mmap.MAP_SHARED if descriptor >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
        if address == _MAP_FAILED:
            number = ctypes.get_errno()
            if descriptor >= 0:
                os.close(descriptor)
            raise OSError(number, f"{os.strerror(number)} while {size:,} bytes were mapped")
        self._memory, self.descriptor, self.address, self.size, self.used = memory, descriptor, address, size, used
        self.handed_over = False
        """Whether another process has it, too, which may write there."""
        memory.mapped[address] = size

    def close_descriptor(self) -> None:
        """The memory stays."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            self._memory.files.discard(descriptor)
            os.close(descriptor)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False), "shape": (self.used,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        address = getattr(self, "address", None)
        if address is not None:
            self.close_descriptor()
            del self._memory.mapped[address]
            _libc.munmap(address, self.size)


class Piece:
    """A part of a mapped file, until the last array over it is gone."""

    __slots__ = ("__weakref__", "_freed", "_mapped", "offset", "size")

    def __init__(self, mapped: Mapped, offset: int, size: int, freed: Callable[[int], object]) -> None:
        """`freed` is told the offset, in any thread."""
        self._mapped, self.offset, self.size, self._freed = mapped, offset, size, freed

    @property
    def __array_interface__(self) -> dict[str, Any]:
        data = (self._mapped.address + self.offset, False)
        return {"data": data, "shape": (self.size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._freed(self.offset)


class Arena:
    """A file of which pieces are taken."""

    def __init__(self, mapped: Mapped, number: int = 0) -> None:
        self.mapped, self.number = mapped, number
        self.pieces = FreeList(mapped.size)
        self.freed: deque[int] = deque()
        """Offsets of pieces that are free again; from any thread."""
        self.bytes: Bytes = np.asarray(mapped)
        self.taken_bytes = 0

    def take(self, size: int) -> int | None:
        """The offset of a piece; None if there is no room for it."""
        self.settle()
        offset = self.pieces.take(size)
        if offset is not None:
            self.taken_bytes += self.pieces.taken[offset]
        return offset

    def give(self, offset: int) -> None:
        self.taken_bytes -= self.pieces.taken[offset]
        self.pieces.give(offset)

    def settle(self) -> None:
        """Give back what is free again."""
        while self.freed:
            self.give(self.freed.popleft())

    @property
    def is_free(self) -> bool:
        return not self.pieces.taken


class Arenas:
    """Arenas that grow as pieces are wanted. Those that are wholly free go, but for the largest."""

    def __init__(self, memory: Memory, opened: Callable[[Arena], None], dropped: Callable[[Arena], None]) -> None:
        self._memory, self._opened, self._dropped = memory, opened, dropped
        self.by_number: dict[int, Arena] = {}
        self._numbers = 0

    @property
    def taken_bytes(self) -> int:
        return sum(arena.taken_bytes for arena in self.by_number.values())

    def take(self, size: int, purpose: str) -> tuple[Arena, int]:
        """A piece of `size` bytes: its arena and offset. `MemoryShort` if there is no room for it."""
        for arena in self.by_number.values():
            offset = arena.take(size)
            if offset is not None:
                return arena, offset
        arena = self._open(size, purpose)
        offset = arena.take(size)
        assert offset is not None
        return arena, offset

    def _open(self, size: int, purpose: str) -> Arena:
        largest = max((arena.pieces.size for arena in self.by_number.values()), default=0)
        wanted = min(max(2 * largest, ARENA_BYTES_MIN), ARENA_BYTES_MAX)
        whole = -(-max(wanted, size) // mmap.PAGESIZE) * mmap.PAGESIZE
        mapped = self._memory.file(whole, purpose, populate=True)
        self._numbers += 1
        arena = self.by_number[self._numbers] = Arena(mapped, self._numbers)
        self._opened(arena)
        return arena

    def drop_free(self) -> None:
        """Give back arenas that are wholly free, but for the largest, and that one if it is larger than most."""
        for arena in self.by_number.values():
            arena.settle()
        free = sorted((a for a in self.by_number.values() if a.is_free), key=lambda arena: arena.pieces.size)
        if free and free[-1].pieces.size <= ARENA_BYTES_MAX:
            free.pop()
        for arena in free:
            del self.by_number[arena.number]
            self._dropped(arena)


class Memory:
    """Of one process."""

    def __init__(self, *, free: Callable[[], int] = free_bytes) -> None:
        self._free = free
        self.files: set[int] = set()
        """Descriptors of files with one array each."""
        self.mapped: dict[int, int] = {}
        """Sizes of what is mapped, by address."""
        self._making = threading.Lock()
        """One looks how much is free, and takes of that, before another does so."""
        self._many = Arenas(self, lambda arena: arena.mapped.close_descriptor(), lambda arena: None)

    def mapped_bytes(self) -> int:
        """What this process has of such memory, its own and others'."""
        return sum(list(self.mapped.values()))

    def kept_bytes(self) -> int:
        """Of arenas, which are kept for the next arrays."""
        return sum(arena.mapped.size for arena in self._many.by_number.values())

    # ---- arrays -----------------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...] | int, dtype: Any = float) -> np.ndarray[Any, Any]:
        """An array with any contents that can be handed to another process without a copy. Small ones, which travel
        within messages, and arrays of Python objects are ordinary arrays. `MemoryShort` if there is no room for it."""
        kind = np.dtype(dtype)
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        size = math.prod(dimensions) * kind.itemsize
        if size <= INLINE_BYTES_MAX or kind.hasobject:
            return np.empty(dimensions, kind)
        flat = self.empty_bytes(size, f"an array of {kind} of shape {dimensions}")
        array: np.ndarray[Any, Any] = flat.view(kind).reshape(dimensions)
        return array

    def empty_bytes(self, size: int, purpose: str) -> Bytes:
        """As `empty`, for bytes; `purpose` is named in an error."""
        if len(self.files) < OWN_FILES_MAX:
            mapped = self.file(size, purpose)
            self.files.add(mapped.descriptor)
            return np.asarray(mapped)
        self._many.drop_free()
        arena, offset = self._many.take(size, purpose)
        return np.asarray(Piece(arena.mapped, offset, size, arena.freed.append))

    def private_bytes(self, size: int, purpose: str) -> Bytes:
        """Bytes that no other process can have, all of them there; in any thread. Kernels give such memory pages of
        2 MiB where files in memory have pages of 4 KiB: a quarter of the time to make and to give back."""
        with self._making:
            mapped = Mapped(self, -1, self._whole_pages(size, purpose), size)
            _madvise(mapped.address, mapped.size, mmap.MADV_HUGEPAGE)  # In vain if the machine has none.
            for begin in range(0, mapped.size, POPULATED_BYTES):
                part = min(POPULATED_BYTES, mapped.size - begin)
                number = _madvise(mapped.address + begin, part, _POPULATE_WRITE)
                if number == errno.EINVAL:  # An older kernel makes pages as they are written.
                    break
                if number:
                    raise MemoryShort(purpose, size, self._free())
        return np.asarray(mapped)

    def copy_of(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A copy that can be handed over."""
        if array.dtype.hasobject:
            return array.copy()
        copy = self.empty(array.shape, array.dtype)
        copy[...] = array
        return copy

    def own_file(self, flat: Bytes) -> Mapped | None:
        """The file that holds these bytes and nothing else, if it has not been handed over."""
        base: Any = flat
        for _ in range(_BASES_MAX):
            base = base.base
            if not isinstance(base, np.ndarray):
                break
        if not isinstance(base, Mapped) or base.descriptor < 0 or base.handed_over or base.used != flat.nbytes:
            return None
        return base if base.descriptor in self.files and flat.ctypes.data == base.address else None

    # ---- files ------------------------------------------------------------------------------------

    def file(self, size: int, purpose: str, *, populate: bool = False) -> Mapped:
        """A new file of at least so many bytes, all of them there."""
        whole = self._whole_pages(size, purpose)
        with contextlib.ExitStack() as undo:
            descriptor = os.memfd_create("sparrow-dataflow", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            undo.callback(os.close, descriptor)
            try:
                os.posix_fallocate(descriptor, 0, whole)
            except OSError:
                raise MemoryShort(purpose, size, self._free()) from None
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
            undo.pop_all()
        return Mapped(self, descriptor, whole, size, mmap.MAP_POPULATE if populate else 0)

    def _whole_pages(self, size: int, purpose: str) -> int:
        """The size, rounded up; `MemoryShort` if that is not free."""
        whole = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        if whole >= ASKED_BYTES_MIN and whole > (free := max(self._free() - SPARED_BYTES, 0)):
            raise MemoryShort(purpose, size, free)
        return whole

    def take_over(self, descriptor: int, size: int) -> Bytes:
        """The bytes of a file that another process has handed over. The descriptor is ours then, whatever happens."""
        mapped = self.map_foreign(descriptor, size)
        if len(self.files) < OWN_FILES_MAX:
            self.files.add(mapped.descriptor)
        else:
            mapped.close_descriptor()
        return np.asarray(mapped)

    def map_foreign(self, descriptor: int, size: int, *, populate: bool = False) -> Mapped:
        """Another process's file of `size` bytes; `ProtocolError` unless all of it is there and stays."""
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, descriptor)
            whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            try:
                seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)  # An error for what is no memory.
            except OSError:
                raise ProtocolError("a descriptor came that is no memory") from None
            status = os.fstat(descriptor)
            if seals & SEALS != SEALS or status.st_size != whole or status.st_blocks * 512 < whole:
                raise ProtocolError(
                    f"memory of {status.st_size:,} bytes, {status.st_blocks * 512:,} of them there, with seals {seals} "
                    f"came; {whole:,} were announced, all there and sealed"
                )
            undo.pop_all()
        return Mapped(self, descriptor, whole, size, mmap.MAP_POPULATE if populate else 0)


_BASES_MAX = 8
"""Views over views of an array; numpy keeps one or two."""
