"""Whether what a plane needs has been compiled on this machine, for this version of it: a mark beside what numba keeps.

Who has to compile first does that in a process of its own, which can be ended at any time: numba itself writes each of
its files under another name, and then renames it.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding  # type: ignore[import-untyped]

NAME = "sparrow-compiled"


class CompileMark:
    """`cache`: the directory in which numba keeps what is compiled. `sources`: directories of what is."""

    def __init__(self, cache: str, sources: Sequence[Path]) -> None:
        self._file = Path(cache) / NAME
        self._sources = sources

    def is_there(self) -> bool:
        """Whether a warm-up would find all that it needs. (If some of it was removed since, it compiles that.)"""
        try:
            return self._file.read_text() == self._state()
        except OSError:
            return False

    def set(self) -> None:
        """The warm-up is over. If that cannot be written down the next one looks again."""
        new = self._file.with_name(f"{NAME}.{os.getpid()}")
        with contextlib.suppress(OSError):
            new.write_text(self._state())
            new.replace(self._file)

    def _state(self) -> str:
        """What makes old what was compiled: sources, versions, the machine."""
        lines = [platform.python_version(), version("numba"), llvmlite.binding.get_host_cpu_name()]
        for source in sorted(file for directory in self._sources for file in directory.glob("*.py")):
            status = source.stat()
            lines.append(f"{source} {status.st_mtime} {status.st_size}")
        return "\n".join(lines)
