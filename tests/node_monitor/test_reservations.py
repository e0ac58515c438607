"""Reservations at a node: what is refused, and what ends the link."""

from __future__ import annotations

from typing import Any

import pytest

from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve


@pytest.mark.parametrize(
    "fields", [{"count": 0}, {"count": -1}, {"weight": 0.0}, {"weight": float("nan")}, {"expected_duration_s": -1.0}]
)
def test_a_bad_reservation_breaks_the_link(fields: dict[str, Any]) -> None:
    rig = NodeCore()
    with pytest.raises(LinkError, match="bad reservation"):
        rig.core.receive("s", reserve(1, **{"app": "pool", **fields}), 0.0)
    rig.settle()


def test_reservations_are_limited_per_user_and_the_rest_refused() -> None:
    rig = NodeCore(1, executors=0, reservations_per_user_max=5)
    rig.receive(reserve(1, 3, app="pool"), reserve(2, 4, app="pool"), reserve(3, 2, app="pool"))
    rig.receive(reserve(4, 5, app="pool", user="bert"), reserve(5, 1, app="none"))
    assert [(refused.ticket, refused.count) for refused in rig.take(m.ReservationsRefused)] == [(2, 2), (3, 2), (5, 1)]
    assert rig.core.queue.users() == {"anna": 5, "bert": 5}
