"""Dask on Sparrow: `get` computes the graphs of Dask's collections.

    import dask
    import sparrow_py.dask

    dask.compute(x, scheduler=sparrow_py.dask.get)

Needs Dask 2026.8 or newer, here and where the workers are.
"""

from __future__ import annotations

try:
    import dask as _  # noqa: F401
except ImportError as error:
    raise ImportError("sparrow_py.dask needs Dask: pip install 'sparrow-py[dask]'") from error

from sparrow_py.dask.scheduler import get
from sparrow_py.kept_clients import close_clients

__all__ = ["close_clients", "get"]
