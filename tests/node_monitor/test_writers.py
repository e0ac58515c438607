"""Threads that hash and write, by turns of users."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from node_monitor.blobs.writers import Writers
from tests.support.waiting import TIMEOUT_S


def test_users_take_turns_and_their_own_work_is_done_in_order() -> None:
    writers, begun, gate, order = Writers(1), threading.Event(), threading.Event(), list[str]()
    done = [writers.submit("", begun.set), writers.submit("", partial(gate.wait, TIMEOUT_S))]
    assert begun.wait(TIMEOUT_S)
    while writers._waiting:  # The thread waits at the gate soon.
        assert not gate.wait(0.001)
    for work in ("ada 1", "ada 2", "ada 3", "bob 1", "bob 2", "eve 1"):
        done.append(writers.submit(work[:3], partial(order.append, work)))
    cancelled = writers.submit("eve", partial(order.append, "eve 2"))
    assert cancelled.cancel()
    gate.set()
    for one in done:
        one.result(TIMEOUT_S)
    assert order == ["ada 1", "bob 1", "eve 1", "ada 2", "bob 2", "ada 3"]
    writers.stop()
    with pytest.raises(RuntimeError):
        writers.submit("ada", gate.wait)
    assert not writers._waiting


def test_what_fails_is_told_and_a_user_alone_has_all_threads() -> None:
    writers, together = Writers(2), threading.Barrier(2)
    done = [writers.submit("ada", partial(together.wait, TIMEOUT_S)) for _ in range(2)]
    assert sorted(one.result(TIMEOUT_S) for one in done) == [0, 1]
    assert isinstance(writers.submit("ada", partial(int, "no number")).exception(TIMEOUT_S), ValueError)
    writers.stop()
