"""`sparrow uncordon`: nodes that were cordoned or drained take part again."""

from __future__ import annotations

from frontends.cli.node_states import state_command
from sparrow_py.wire.messages import READY

uncordon = state_command(
    "uncordon",
    READY,
    "Let nodes take part again.",
    "Let nodes that were cordoned or drained take part again.",
)
