"""Of several pytest processes one compiles, and the others wait for its file: where nothing is compiled yet, all would
compile the same kernels at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOCK = "compiling"
"""The name of the lock's file."""


class OneCompiler:
    """A lock of all processes that have made one of the same directory. The thread that has it may take it again: to
    compile a kernel is to compile those that it calls."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._path = directory / LOCK
        self._here = threading.RLock()
        self._depth = 0

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else is in such a block meanwhile."""
        with self._here, contextlib.ExitStack() as stack:
            if self._depth == 0:
                file = stack.enter_context(self._path.open("a"))
                fcntl.flock(file, fcntl.LOCK_EX)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1


def is_kept(dispatcher: Any) -> bool:
    """Whether numba has something of the function, of its present source, in its files."""
    function = dispatcher.py_func
    source = Path(function.__code__.co_filename)
    pattern = f"{source.stem}.{function.__qualname__}-{function.__code__.co_firstlineno}.*.nbi"
    changed_s = source.stat().st_mtime
    return any(file.stat().st_mtime >= changed_s for file in Path(dispatcher.stats.cache_path).glob(pattern))


def compile_one_at_a_time(directory: Path) -> None:
    """From now on this process compiles what is not kept only while no other process does; numba looks for the files
    again when it is this one's turn."""
    from numba.core.dispatcher import Dispatcher

    compiler, compiled = OneCompiler(directory), Dispatcher.compile

    def compile_alone(dispatcher: Any, signature: Any) -> Any:
        if dispatcher.stats.cache_path is None or is_kept(dispatcher):
            return compiled(dispatcher, signature)
        with compiler.alone():
            return compiled(dispatcher, signature)

    Dispatcher.compile = compile_alone
