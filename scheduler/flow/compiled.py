"""Functions that numba compiles: they run without the GIL, and are compiled once per machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function in machine code; its callers keep its types."""
    return cast(Function, njit(cache=True, nogil=True)(function))


def inlined(function: Function) -> Function:
    """The function as a part of each compiled function that calls it: for steps that are too small for a call.

    A change of it is seen by callers in other modules only once their own files change, or their caches are removed.
    """
    return cast(Function, njit(cache=True, nogil=True, inline="always")(function))
