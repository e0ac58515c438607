"""Fixtures for tests of several executors, and of several parts of the command `sparrow`."""

import os
from pathlib import Path

import pytest

import sparrow_py
from tests.support.run_fakes import FakeClient, FakeCluster


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    """A named pipe: to open it waits for the other side, to read its end waits for the last writer to die."""
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    return path


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[FakeClient]:
    """Replaces Client and LocalCluster by fakes; the list of clients that are made."""
    made: list[FakeClient] = []
    monkeypatch.setattr(FakeClient, "made", made, raising=False)
    monkeypatch.setattr(sparrow_py, "Client", FakeClient, raising=False)
    monkeypatch.setattr(sparrow_py, "LocalCluster", FakeCluster, raising=False)
    return made
