"""A command that runs node monitors on other machines, as a child of this process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from sparrow_py.errors import ClusterError
from sparrow_py.logs.printable import printable
from sparrow_py.processes.process_ends import exit_reason, wait_or_kill

LOG_TAIL_BYTES = 4096
"""Of the end of a log that are looked at."""
LOG_LINES_MAX = 12
"""Lines of it that are told."""
STOP_TIMEOUT_S = 10.0
"""How long the other machine has to end what was started there."""


class Launched:
    """Of these machines. What the command and the node monitors write to standard error goes to `log`; None: to this
    process's. `ClusterError` if the command cannot be run."""

    def __init__(
        self, machines: str, command: Sequence[str], token: str, log: Any, environment: Mapping[str, str]
    ) -> None:
        self.machines = machines
        self._program = command[0]
        self._log = None if log is None else Path(log.name)
        try:
            self.process = Popen(
                command, stdin=PIPE, stdout=DEVNULL, stderr=log, start_new_session=True, env=dict(environment)
            )
        except OSError as error:
            raise ClusterError(f"{self._program} cannot be run: {error.strerror}") from None
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # It has ended already: `why_ended` says so.
            self.process.stdin.write(token.encode() + b"\n")
            self.process.stdin.flush()

    def why_ended(self) -> str:
        """How the command ended; empty if it runs."""
        code = self.process.poll()
        return "" if code is None else f"{self._program} ({self.machines}) {exit_reason(code)}"

    def last_words(self) -> str:
        """How it ended, as `why_ended`, and the last lines of its log, or where these are."""
        if self._log is None:
            return f"{self.why_ended()}; what it said is on standard error"
        said = "\n".join(last_lines_of(self._log))
        return f"{self.why_ended()}; its log ends with:\n{said}" if said else f"{self.why_ended()}; its log is empty"

    def end(self) -> None:
        """End what it runs, by the end of its standard input."""
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def wait_ended(self) -> None:
        """Wait until it has ended; kill it if it takes too long."""
        wait_or_kill(self.process, STOP_TIMEOUT_S)


def last_lines_of(log: Path) -> list[str]:
    """The last lines of a file that others write, printable; none if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [printable(line.rstrip()) for line in text.splitlines() if line.strip()][-LOG_LINES_MAX:]
