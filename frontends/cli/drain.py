"""`sparrow drain`: nodes hand back what has not started, and finish what runs."""

from __future__ import annotations

from frontends.cli.node_states import state_command
from sparrow_py.wire.messages import DRAINING

drain = state_command(
    "drain",
    DRAINING,
    "Have nodes hand back what has not started.",
    "Have these nodes hand back what has not started, and take nothing new; what runs there finishes.\n\n"
    "Their node monitors run on, until they are ended or uncordoned.",
)
