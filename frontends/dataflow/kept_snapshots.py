"""The directory of a Dataflow's snapshots, which outlives its drivers: after Ctrl-C the next one goes on from them."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from frontends.dataflow.controller_core import END
from frontends.dataflow.snapshot_files import SnapshotFiles


class KeptSnapshots:
    """It is made with the first snapshot, and goes with `remove`, or with this process."""

    def __init__(self, parent: str | None) -> None:
        """`parent`: where the program wants it."""
        name = f"dataflow-{secrets.token_hex(8)}"
        self.path = Path(tempfile.gettempdir(), f"sparrow-{name}") if parent is None else Path(parent, name)
        self._process = os.getpid()
        """A child that is forked removes nothing."""
        atexit.register(self.remove)

    def reach(self, run: int) -> bool:
        """Whether there is a whole one from which programs can go on without the runs before this one."""
        return any(stored + (block == END) >= run for stored, block in SnapshotFiles(self.path).whole())

    def remove(self) -> None:
        """Remove all snapshots."""
        if self._process == os.getpid():
            shutil.rmtree(self.path, ignore_errors=True)
            atexit.unregister(self.remove)
