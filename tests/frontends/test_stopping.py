"""Signals that end a subcommand unwind it, so that what it has started or written goes with it."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontends.cli.stopping import HUNG_UP_EXIT, TERMINATED_EXIT, exit_on_signals


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """The handlers of the process that runs the tests come back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, TERMINATED_EXIT), (signal.SIGHUP, HUNG_UP_EXIT)])
def test_what_was_written_for_the_command_goes_with_it(number: signal.Signals, code: int, tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    exit_on_signals()
    with pytest.raises(SystemExit) as ended, tempfile.TemporaryDirectory(dir=tmp_path):
        signal.raise_signal(number)
    assert ended.value.code == code
    assert not list(tmp_path.iterdir())


def test_what_nohup_ignores_is_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    exit_on_signals()
    signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
