"""Whether what rounds need has been compiled on this machine, for this version of it: a mark beside what numba keeps.

Who has to compile first does that in a process of its own (`compile_solvers`), which can be ended at any time: numba
itself writes each of its files under another name, and then renames it.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any, cast

import llvmlite.binding  # type: ignore[import-untyped]
import numba

from scheduler.flow import network

MARK = "sparrow-compiled"


def is_compiled() -> bool:
    """Whether `warm_up` would find all that it needs. (If some of it was removed since, it compiles that.)"""
    try:
        return _mark().read_text() == _state()
    except OSError:
        return False


def note_compiled() -> None:
    """`warm_up` is over. If that cannot be written down the next one looks again."""
    mark = _mark()
    new = mark.with_name(f"{MARK}.{os.getpid()}")
    with contextlib.suppress(OSError):
        new.write_text(_state())
        new.replace(mark)


def _mark() -> Path:
    """The file that says what was compiled."""
    return Path(cast(Any, network.check).stats.cache_path) / MARK


def _state() -> str:
    """What makes old what was compiled: sources, versions, the machine."""
    lines = [platform.python_version(), numba.__version__, llvmlite.binding.get_host_cpu_name()]
    here = Path(__file__).parent
    for source in sorted([*here.glob("*.py"), *here.glob("solvers/*.py")]):
        status = source.stat()
        lines.append(f"{source} {status.st_mtime} {status.st_size}")
    return "\n".join(lines)
