"""joblib on Sparrow: to import this package registers the backend `sparrow`.

    import joblib
    import sparrow_py.joblib

    with joblib.parallel_config(backend="sparrow"):
        joblib.Parallel()(joblib.delayed(work)(number) for number in range(100))

`parallel_config` takes the backend's parameters, of which `SparrowBackend` tells. Needs joblib 1.5 or newer.
"""

from __future__ import annotations

try:
    from joblib import register_parallel_backend
except ImportError as error:
    raise ImportError("sparrow_py.joblib needs joblib: pip install 'sparrow-py[joblib]'") from error

from sparrow_py.joblib.backend import SparrowBackend
from sparrow_py.kept_clients import close_clients

__all__ = ["NAME", "SparrowBackend", "close_clients"]

NAME = "sparrow"
"""What the backend is called."""

register_parallel_backend(NAME, SparrowBackend)
