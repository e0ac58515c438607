"""Signals that end a subcommand."""

from __future__ import annotations

import signal
from types import FrameType

HUNG_UP_EXIT = 128 + signal.SIGHUP
TERMINATED_EXIT = 128 + signal.SIGTERM


def exit_on_signals() -> None:
    """Let SIGTERM, and SIGHUP unless it is ignored (nohup), unwind like Ctrl-C, as a `SystemExit`, so that everything
    started here is stopped, and its files removed."""
    signal.signal(signal.SIGTERM, _exit)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _exit)


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
