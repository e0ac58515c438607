"""Operators whose users share an account are told if the kernel lets its processes into each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_monitor.daemon import NodeMonitorDaemon
from node_monitor.executors import confinement
from node_monitor.executors.confinement import ptrace_warning
from node_monitor.options import NodeMonitorOptions
from tests.support.guarded import usual_tokens


@pytest.fixture
def scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of the kernel's; not there yet."""
    path = tmp_path / "ptrace_scope"
    monkeypatch.setattr(confinement, "PTRACE_SCOPE", str(path))
    return path


@pytest.mark.parametrize(("content", "said"), [(None, "is missing: "), ("0\n", "is 0: "), ("1\n", ""), ("3\n", "")])
def test_what_the_kernel_says(scope: Path, content: str | None, said: str) -> None:
    if content is not None:
        scope.write_text(content)
    warning = ptrace_warning()
    assert bool(warning) == bool(said) and said in warning
    assert not warning or "set kernel.yama.ptrace_scope=1" in warning


@pytest.mark.parametrize(
    ("content", "guarded", "times"), [("0\n", True, 1), ("0\n", False, 0), ("1\n", True, 0)], ids=str
)
async def test_it_is_said_once_at_the_start_where_users_are_told_apart(
    scope: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str, guarded: bool, times: int
) -> None:
    scope.write_text(content)
    token_file = str(usual_tokens(tmp_path / "tokens")) if guarded else None
    options = NodeMonitorOptions(
        port=0, scheduler=("127.0.0.1:1",), token_file=token_file, warm=(), slots=1, blob_bytes_max=1_000_000
    )
    daemon = NodeMonitorDaemon(options)
    try:
        await daemon.start()
    finally:
        await daemon.stop()
    assert caplog.text.count("set kernel.yama.ptrace_scope=1") == times
