"""`sparrow cordon`: nodes get no new reservations, and serve those that they have."""

from __future__ import annotations

from frontends.cli.node_states import state_command
from sparrow_py.wire.messages import CORDONED

cordon = state_command(
    "cordon",
    CORDONED,
    "Give nodes nothing new.",
    "Keep new work from these nodes; what is queued there and what runs goes on.",
)
