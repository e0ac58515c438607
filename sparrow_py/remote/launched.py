"""A command that runs node monitors on other machines, as a child of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from sparrow_py.errors import ClusterError
from sparrow_py.processes.process_ends import exit_reason, wait_or_kill

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

    def end(self) -> None:
        """End what it runs, by the end of its standard input."""
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def wait_ended(self) -> None:
        """Wait until it has ended; kill it if it takes too long."""
        wait_or_kill(self.process, STOP_TIMEOUT_S)
