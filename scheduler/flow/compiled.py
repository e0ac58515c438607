"""Whether what rounds need has been compiled on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from scheduler.compile_mark import CompileMark
from scheduler.flow import network


def is_compiled() -> bool:
    """Whether `warm_up` would find all that it needs."""
    return _mark().is_there()


def note_compiled() -> None:
    """`warm_up` is over."""
    _mark().set()


def _mark() -> CompileMark:
    """Beside what numba keeps of the solvers."""
    here = Path(__file__).parent
    return CompileMark(cast(Any, network.check).stats.cache_path, [here, here / "solvers"])
