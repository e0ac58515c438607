"""Large inputs that are at other nodes: where they are sought, and which attempts wait for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node_monitor import inputs
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, NodeCore
from tests.support.recorder import reserve

HASH = "ab" * 32


def ref(*at: str) -> BlobRef:
    return BlobRef(HASH, 9, at)


@pytest.fixture
def node() -> Iterator[NodeCore]:
    """A node of four slots; each test leaves nothing under way."""
    node = NodeCore(4, [MANY])
    yield node
    assert not node.core.inputs.fetching


def launch(node: NodeCore, number: int, payload: BlobRef) -> None:
    """Attempt `number` of the job j, for which it needs this."""
    node.receive(reserve(number, job="j"))
    (ask,) = node.take(m.GetTasks)
    node.receive(m.Launch(ask.ask, "j", 0, number, number, payload))


def answer(node: NodeCore, reason: str = "") -> None:
    """A request has this answer."""
    node.core.fetched(HASH, reason, node.now_s)
    node.settle()


def sought(node: NodeCore) -> list[tuple[str, ...]]:
    """Where the data were asked for since the last call."""
    places = [one.at for one in node.outbox.fetches]
    node.outbox.fetches.clear()
    return places


def handed_back(node: NodeCore) -> list[tuple[int, tuple[str, ...]]]:
    return [(back.attempt, back.missing) for back in node.take(m.HandBack)]


def test_attempts_that_need_the_same_share_one_request(node: NodeCore) -> None:
    launch(node, 1, ref("far:1"))
    launch(node, 2, ref("far:1"))
    assert sought(node) == [("far:1",)] and not node.take(x.Run)
    node.blobs.add(ref())
    answer(node)
    assert len(node.take(x.Run)) == 2 and sought(node) == []


def test_what_is_here_is_not_asked_for(node: NodeCore) -> None:
    node.blobs.add(ref())
    launch(node, 1, ref("far:1"))
    assert sought(node) == [] and len(node.take(x.Run)) == 1


def test_each_place_is_tried_once_before_the_attempts_are_handed_back(node: NodeCore) -> None:
    for number, at in enumerate(["far:1", "far:2", "far:2", "far:3"], 1):
        launch(node, number, ref(at))
    places = []
    while found := sought(node):
        places += found
        assert handed_back(node) == []
        answer(node, "404")
    assert places == [("far:1",), ("far:2",), ("far:3",)]
    assert handed_back(node) == [(number, (HASH,)) for number in (1, 2, 3, 4)]


def test_a_place_that_an_attempt_named_is_tried_though_that_attempt_has_left(node: NodeCore) -> None:
    launch(node, 1, ref("far:1"))
    launch(node, 2, ref("far:2"))
    node.receive(m.CancelAttempt("j", 2))
    sought(node)
    answer(node, "far:1: 404")
    assert sought(node) == [("far:2",)] and handed_back(node) == []
    node.blobs.add(ref())
    answer(node)
    assert len(node.take(x.Run)) == 1


def test_the_answer_for_an_attempt_that_has_left_is_not_the_answer_for_the_next(node: NodeCore) -> None:
    """The next attempt names another node, which is asked while the first answer is on its way."""
    launch(node, 1, ref("far:1"))
    node.receive(m.CancelAttempt("j", 1))
    launch(node, 2, ref("far:2"))
    assert sought(node) == [("far:1",), ("far:2",)]
    answer(node, "far:1: 404")
    assert handed_back(node) == []
    node.blobs.add(ref())
    answer(node)
    assert len(node.take(x.Run)) == 1


def test_an_attempt_that_names_the_same_place_is_handed_back_with_the_first_answer(node: NodeCore) -> None:
    launch(node, 1, ref("far:1"))
    node.receive(m.CancelAttempt("j", 1))
    launch(node, 2, ref("far:1"))
    answer(node, "far:1: 404")
    assert handed_back(node) == [(2, (HASH,))]
    answer(node, "far:1: 404")
    assert handed_back(node) == []


def test_nothing_is_tried_for_nobody(node: NodeCore) -> None:
    launch(node, 1, ref("far:1"))
    launch(node, 2, ref("far:2"))
    for number in (1, 2):
        node.receive(m.CancelAttempt("j", number))
    sought(node)
    answer(node, "far:1: 404")
    assert sought(node) == [] == handed_back(node)


def test_places_beyond_the_maximum_are_not_remembered(node: NodeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "SOURCES_MAX", 2)
    for number in (1, 2, 3):
        launch(node, number, ref(f"far:{number}"))
    places = sought(node)
    answer(node, "far:1: 404")
    places += sought(node)
    answer(node, "far:2: 404")
    assert places == [("far:1",), ("far:2",)] and len(handed_back(node)) == 3
