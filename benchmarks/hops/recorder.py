"""Notes when a process says or hears a message, in a file that other processes can read while it lives.

The functions that encode and decode messages are replaced as their modules are imported, so no product code knows of
it. A note takes about 2 µs; it is 24 bytes in a mapped file, so nothing is lost if the process is killed.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.hops.path import HEARS, SAYS

DIRECTORY_VARIABLE = "HOPS_DIRECTORY"
"""Without the prefix of our options, which daemons of an embedded cluster do not inherit."""
NOTE = struct.Struct("<QQQ")
"""When, by the clock that all processes share; CPU time of the thread; label and thread (both numbers of ours)."""
NOTES_MAX = 400_000
"""Per process; those that come later are not noted."""
LABELS_SUFFIX = ".labels"
ROLES = {
    "scheduler": "scheduler",
    "node_monitor": "node monitor",
    "sparrow_py.embedded.one_process": "daemons",
    "frontends.python.executor": "worker",
}
"""By the module that the interpreter runs; the client is what runs none of these."""
Note = Callable[[str], None]


class _Here:
    """This process."""

    notes: _Notes | None = None


def note(label: str) -> None:
    """It happens now. Nothing is noted if the environment does not say where."""
    if _Here.notes is not None:
        _Here.notes.note(label)


def follow_environment() -> None:
    """Begin to note if the environment says where to."""
    directory = os.environ.get(DIRECTORY_VARIABLE, "")
    if directory:
        _Here.notes = _Notes(Path(directory), role())
        sys.meta_path.insert(0, _Patching(_Here.notes.note))


def role() -> str:
    """What this process is to the others."""
    running = [name for module, name in ROLES.items() if module in sys.orig_argv]
    return " + ".join(running) or "client"


class _Notes:
    """The file of a process."""

    def __init__(self, directory: Path, role: str) -> None:
        self._directory = directory
        self._role = role
        self._open()
        os.register_at_fork(after_in_child=self._open)  # Workers are forked.

    def _open(self) -> None:
        path = self._directory / f"{self._role}.{os.getpid()}"
        with path.open("xb+") as file:
            file.truncate(NOTE.size * NOTES_MAX)
            self._notes = mmap.mmap(file.fileno(), 0)
        self._labels = path.with_name(path.name + LABELS_SUFFIX).open("x", encoding="utf-8")
        self._known: dict[str, int] = {}
        self._count = 0

    def note(self, label: str) -> None:
        """It happens now."""
        when_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        number = self._known.get(label)
        if number is None:
            number = self._known[label] = len(self._known) + 1
            print(label, file=self._labels, flush=True)
        count = self._count
        if count < NOTES_MAX:
            self._count = count + 1
            NOTE.pack_into(self._notes, count * NOTE.size, when_ns, cpu_ns, number)


# ---- what is replaced ----------------------------------------------------------------------------


def _names(messages: Sequence[Any]) -> str:
    return ",".join(sorted({type(message).__name__ for message in messages}))


def _note_heard(kind: Any, method: str, note: Note) -> None:
    """The method of the class gives messages that came: note them."""
    inner = getattr(kind, method)

    def noted(self: Any, data: Any) -> Any:
        messages = inner(self, data)
        note(HEARS + _names(messages))
        return messages

    setattr(kind, method, noted)


def _patch_messages(module: Any, note: Note) -> None:
    encode_into = module.encode_into

    def noted_encode_into(message: Any, frame: bytearray, offset: int) -> None:
        note(SAYS + type(message).__name__)
        encode_into(message, frame, offset)

    module.encode_into = noted_encode_into
    _note_heard(module.FrameDecoder, "__call__", note)


def _patch_executor_protocol(module: Any, note: Note) -> None:
    encode_frame = module.encode_frame

    def noted_encode_frame(messages: Sequence[Any], *encoding: Any) -> Any:
        note(SAYS + _names(messages))
        return encode_frame(messages, *encoding)

    module.encode_frame = noted_encode_frame
    _note_heard(module.FrameSplitter, "feed", note)


def _patch_task_future(module: Any, note: Note) -> None:
    settle = module.TaskFuture.settle

    def noted_settle(*arguments: Any) -> None:
        note("settles the future")
        settle(*arguments)

    module.TaskFuture.settle = noted_settle


PATCHES: dict[str, Callable[[Any, Note], None]] = {
    "sparrow_py.wire.messages": _patch_messages,
    "sparrow_py.executors.executor_protocol": _patch_executor_protocol,
    "sparrow_py.futures.task_future": _patch_task_future,
}


class _Patching(MetaPathFinder):
    """Finds the modules that are to be patched, and has them patched when they have been executed."""

    def __init__(self, note: Note) -> None:
        self._note = note

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `MetaPathFinder`."""
        patch = PATCHES.get(name)
        spec = None if patch is None else PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None and patch is not None:
            spec.loader = _PatchingLoader(spec.loader, lambda module: patch(module, self._note))
        return spec


class _PatchingLoader(Loader):
    def __init__(self, loader: Any, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See `Loader`."""
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        self._loader.exec_module(module)
        self._patch(module)
