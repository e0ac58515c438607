"""Whether what decisions need has been compiled on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from scheduler.altruistic import matching
from scheduler.altruistic.kernels import IS_COMPILED


def is_compiled() -> bool:
    """Whether `warm_up` would find all that it needs: without numba that is nothing."""
    if not IS_COMPILED:
        return True
    from scheduler.compile_mark import CompileMark

    return CompileMark(_cache(), [Path(__file__).parent]).is_there()


def note_compiled() -> None:
    """`warm_up` is over."""
    if IS_COMPILED:
        from scheduler.compile_mark import CompileMark

        CompileMark(_cache(), [Path(__file__).parent]).set()


def _cache() -> str:
    return str(cast(Any, matching.match_in_order).stats.cache_path)
