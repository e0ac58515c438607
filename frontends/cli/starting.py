"""What is said while a cluster of this machine starts and that takes long."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator

import click

from sparrow_py.wire.messages import LED

SLOW_AFTER_S = 5.0
COMPILES = (
    "sparrow: the scheduler that leads starts; the first time it compiles what it decides with, for a minute or two"
)


@contextlib.contextmanager
def told_if_slow(policies: Collection[str]) -> Iterator[None]:
    """Meanwhile a cluster with schedulers of these policies starts: say after a while why nothing happens."""
    timer = threading.Timer(SLOW_AFTER_S, click.echo, [COMPILES], {"err": True})
    timer.daemon = True
    if not set(LED).isdisjoint(policies):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
