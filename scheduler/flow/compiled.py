"""Functions that numba compiles: they run without the GIL, and are compiled once per machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function in machine code; its callers keep its types."""
    return cast(Function, njit(cache=True, nogil=True)(function))
