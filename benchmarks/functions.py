"""The Python functions that benchmarks call: in a module of their own, so that workers import them by reference."""

from __future__ import annotations

import time

SLEEP_S = 0.01


def noop(*_: object) -> None:
    """Do nothing."""


def sleep() -> None:
    """Sleep."""
    time.sleep(SLEEP_S)
