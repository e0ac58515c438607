"""How numba compiles the functions of a network's arrays: without the GIL, and kept beside their source.

They count no references, so they may not make arrays: a tuple of arrays costs a count for each of them at each step
otherwise, and a look at an arc took 290 ns instead of 10.

What is kept is looked up by the file of the function alone. After a change of a function that functions of other files
call, theirs is old: remove `scheduler/flow/**/__pycache__`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """The function in machine code; its callers keep its types."""
    decorator = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]  # an option without a type
    return cast(Function, decorator(function))
