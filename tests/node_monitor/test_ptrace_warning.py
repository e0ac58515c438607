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
    ("content", "guarded", "of_a_program", "times"),
    [
        ("0\n", "file", False, 1), ("0\n", "", False, 0), ("1\n", "file", False, 0),
        ("0\n", "file", True, 1), ("0\n", "secret", False, 1), ("0\n", "secret", True, 0),
    ],
    ids=str,
)  # fmt: skip
async def test_it_is_said_once_at_the_start_where_users_are_told_apart(
    scope: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
    content: str, guarded: str, of_a_program: bool, times: int,
) -> None:  # fmt: skip
    """A program's own node monitors, on other machines, have one user: its secret is in their environment."""
    scope.write_text(content)
    if guarded == "secret":
        monkeypatch.setenv("SPARROW_TOKEN", "s" * 40)
    options = NodeMonitorOptions(
        port=0, scheduler=("127.0.0.1:1",), warm=(), slots=1, blob_bytes_max=1_000_000,
        token_file=str(usual_tokens(tmp_path / "tokens")) if guarded == "file" else None,
        exit_on_stdin_eof=of_a_program,
    )  # fmt: skip
    daemon = NodeMonitorDaemon(options)
    try:
        await daemon.start()
    finally:
        await daemon.stop()
    assert caplog.text.count("set kernel.yama.ptrace_scope=1") == times
