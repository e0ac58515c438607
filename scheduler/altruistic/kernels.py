"""How functions of arrays are compiled, if numba is installed; else Python runs them as they stand.

They are written for the compiler: loops over numbers, arrays that the caller made. Sums go resource by resource, in
order, so that both ways give the same answers.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

IS_COMPILED = importlib.util.find_spec("numba") is not None


def kernel(function: Function) -> Function:
    """The function in machine code, kept beside its source; its callers keep its types."""
    if not IS_COMPILED:
        return function
    from numba import njit

    return cast(Function, njit(cache=True, nogil=True)(function))


def inlined(function: Function) -> Function:
    """The same, as part of each kernel that calls it: for what is called very often, with many arrays."""
    if not IS_COMPILED:
        return function
    from numba import njit

    return cast(Function, njit(inline="always")(function))
