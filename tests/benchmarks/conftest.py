"""Fixtures of this directory's tests."""

from tests.support.compiled_cache import session_cache  # noqa: F401
