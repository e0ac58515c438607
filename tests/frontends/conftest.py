"""Fixtures for tests of several executors."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    """A named pipe: to open it waits for the other side, to read its end waits for the last writer to die."""
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    return path
