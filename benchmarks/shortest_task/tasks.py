"""The function that tasks of other systems call: their workers import this module, so it imports next to nothing."""

from __future__ import annotations

import time


def sleep(duration_s: float) -> None:
    """Take a slot for so long."""
    time.sleep(duration_s)
