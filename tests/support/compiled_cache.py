"""What numba compiles in tests is kept for the session, and not in the user's cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frontends.dataflow import source_cache


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache directory of all tests of this session."""
    home = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(source_cache.CACHE_VARIABLE, str(home))
        source_cache.cache_directory.cache_clear()
        yield home
    source_cache.cache_directory.cache_clear()
