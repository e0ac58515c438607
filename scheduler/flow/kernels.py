"""How the kernels of a network's arrays are compiled: they count no references, so they may not make arrays.

A tuple of 27 arrays costs a count for each at each step otherwise: a look at an arc takes 290 ns instead of 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """The function in machine code, without the GIL, kept beside its source; its callers keep its types."""
    decorator = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]  # an option without a type
    return cast(Function, decorator(function))
