"""Processes that a benchmark's daemons have left running."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container

import psutil


def living_children(strangers: Container[int]) -> list[psutil.Process]:
    """Children of this process that run, but for those; others that have ended are reaped."""
    living = []
    for child in psutil.Process().children():
        if child.pid in strangers:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() == psutil.STATUS_ZOMBIE:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)
            else:
                living.append(child)
    return living
