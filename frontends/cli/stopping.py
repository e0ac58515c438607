"""Signals that end a subcommand."""

from __future__ import annotations

import signal
from types import FrameType

TERMINATED_EXIT = 128 + signal.SIGTERM


def exit_on_sigterm() -> None:
    """Let SIGTERM unwind like Ctrl-C, as a `SystemExit`, so that everything started here is stopped."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(_: int, __: FrameType | None) -> None:
    raise SystemExit(TERMINATED_EXIT)
