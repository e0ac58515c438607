"""A missing package of the extra `workflow` as an error that says what to install."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from frontends.workflow.errors import ExtraMissing

PACKAGES = ("dask", "datafusion", "duckdb", "lark", "numba", "pandas", "polars", "pyarrow", "scipy", "sqlglot")
"""Packages of the extra; whoever adds one to it adds its name here."""


@contextlib.contextmanager
def needs_extra() -> Iterator[None]:
    """For imports of this package's modules in a `with` block: `ExtraMissing` if a package of the extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        raise ExtraMissing(package) from None
