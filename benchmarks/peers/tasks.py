"""What tasks do. Workers of all systems import this module, so it imports next to nothing."""

from __future__ import annotations

import os
import time


def nap(duration_s: float, number: int) -> int:
    """Take a slot for so long; returns the number, so that answers can be checked."""
    time.sleep(duration_s)
    return number


def nap_10_ms(number: int) -> int:
    """A nap whose length is no argument: some systems know functions by name alone."""
    return nap(0.01, number)


def nap_100_ms(number: int) -> int:
    """The same, longer."""
    return nap(0.1, number)


def same(number: int) -> int:
    """Do nothing."""
    return number


def process_after(duration_s: float) -> int:
    """The process that runs this, which is held for so long, so that others get their share."""
    time.sleep(duration_s)
    return os.getpid()
