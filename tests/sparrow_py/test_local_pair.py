"""Links within a process: what is sent arrives once, in order, and never while its receiver is in an event."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.errors import LinkError
from sparrow_py.wire import attaching
from sparrow_py.wire import messages as m
from sparrow_py.wire.attaching import Attaching
from sparrow_py.wire.local_pair import INTERNAL_ERROR, ROUNDS_MAX, LocalEnd, LocalPair


class Side:
    """An owner that notes what it hears, and answers each message that is a number above 0 with the next smaller."""

    def __init__(self, end: LocalEnd) -> None:
        self.end = end
        self.heard: list[Any] = []
        self.gone_because: list[str] = []
        self.raises: Exception | None = None
        self._busy = False
        end.owner = self

    def said(self, batch: list[Any]) -> None:
        assert not self._busy, "called in the middle of an event"
        self._busy = True
        if self.raises is not None:
            raise self.raises
        for message in batch:
            self.heard.append(message)
            if message[1] > 0:
                self.end.send((message[0], message[1] - 1))  # type: ignore[arg-type]
                self.end.deliver()  # As a driver may that is told of something else meanwhile.
        self._busy = False
        self.end.deliver()

    def gone(self, reason: str) -> None:
        self.gone_because.append(reason)


def pair() -> tuple[Side, Side]:
    both = LocalPair("scheduler", "node")
    return Side(both.dialled), Side(both.dialler)


def numbers(side: Side) -> list[int]:
    return [message[1] for message in side.heard]


async def test_what_was_sent_in_an_event_arrives_when_it_is_over_and_is_answered_at_once() -> None:
    scheduler, node = pair()
    scheduler.end.send(("a", 0))  # type: ignore[arg-type]
    scheduler.end.send(("b", 2))  # type: ignore[arg-type]
    assert node.heard == []
    scheduler.end.deliver()
    assert node.heard == [("a", 0), ("b", 2), ("b", 0)]
    assert scheduler.heard == [("b", 1)]


async def test_what_is_sent_outside_of_an_event_arrives_in_the_next_turn() -> None:
    scheduler, node = pair()
    node.end.send(("a", 0))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert scheduler.heard == [("a", 0)]


async def test_two_that_go_on_answering_leave_others_their_turn() -> None:
    scheduler, node = pair()
    scheduler.end.send(("a", 10 * ROUNDS_MAX))  # type: ignore[arg-type]
    scheduler.end.deliver()
    assert len(scheduler.heard) + len(node.heard) <= 2 * ROUNDS_MAX
    while min((*numbers(scheduler), *numbers(node))) > 0:
        await asyncio.sleep(0)
    assert sorted((*numbers(scheduler), *numbers(node))) == list(range(10 * ROUNDS_MAX + 1))


@pytest.mark.parametrize(
    ("error", "reason"), [(LinkError("not like this"), "not like this"), (KeyError("bug"), INTERNAL_ERROR)]
)
async def test_what_goes_wrong_at_one_side_closes_the_pair_and_reaches_nobody_else(
    error: Exception, reason: str
) -> None:
    scheduler, node = pair()
    node.raises = error
    scheduler.end.send(("a", 0))  # type: ignore[arg-type]
    scheduler.end.deliver()
    await asyncio.sleep(0)
    assert (scheduler.gone_because, node.gone_because) == ([reason], [reason])
    assert scheduler.end.closed_because == reason
    scheduler.end.send(("b", 0))  # type: ignore[arg-type]
    scheduler.end.deliver()
    await asyncio.sleep(0)
    assert node.heard == []


async def test_what_was_sent_arrives_before_the_end() -> None:
    scheduler, node = pair()
    node.end.send(("a", 0))  # type: ignore[arg-type]
    await node.end.aclose("done")
    node.end.close("again")
    await asyncio.sleep(0)
    assert scheduler.heard == [("a", 0)]
    assert (scheduler.gone_because, node.gone_because) == (["done"], ["done"])


@given(
    events=st.lists(
        st.tuples(st.sampled_from([0, 1]), st.lists(st.integers(0, 3 * ROUNDS_MAX), max_size=4), st.booleans()),
        max_size=12,
    )
)
def test_all_arrives_once_and_in_order(events: list[tuple[int, list[int], bool]]) -> None:
    async def play() -> None:
        sides = pair()
        for number, (who, answers, delivers) in enumerate(events):
            for place, count in enumerate(answers):
                sides[who].end.send(((number, place), count))  # type: ignore[arg-type]
            if delivers:
                sides[who].end.deliver()
        for _ in range(200):
            await asyncio.sleep(0)
        for who, side in enumerate(sides):
            sent_by_other = [(n, p) for n, (w, a, _) in enumerate(events) if w != who for p in range(len(a))]
            first = [name for name, count in side.heard if count == events[name[0]][1][name[1]]]
            assert [name for name in first if events[name[0]][0] != who] == sent_by_other
        heard = sorted((*sides[0].heard, *sides[1].heard))
        expected = [
            ((number, place), left)
            for number, (_, answers, _) in enumerate(events)
            for place, count in enumerate(answers)
            for left in range(count + 1)
        ]
        assert heard == sorted(expected)

    asyncio.run(play())


# ---- attaching -------------------------------------------------------------------------------


class Scheduler:
    """A scheduler that takes node monitors in."""

    name = "scheduler-1"

    def __init__(self) -> None:
        self.sides: list[Side] = []
        self.infos: list[m.NodeInfo] = []

    def attach_node(self, node_id: str, node: m.NodeInfo, pair: LocalPair) -> m.Welcome:
        self.sides.append(Side(pair.dialled))
        self.infos.append(node)
        pair.dialled.send((node_id, 0))  # type: ignore[arg-type] # Before the node monitor knows of the link.
        pair.dialled.deliver()
        return m.Welcome(m.PROTOCOL_VERSION, self.name, 1 << 20)


class User:
    """A node monitor: what it heard of its links."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def scheduler_up(self, scheduler: str, welcome: m.Welcome) -> None:
        self.heard.append(("up", scheduler, welcome.frame_bytes_max))

    def scheduler_said(self, scheduler: str, batch: list[Any]) -> None:
        self.heard.append(("said", scheduler, batch))

    def scheduler_down(self, scheduler: str, reason: str) -> None:
        self.heard.append(("down", scheduler, reason))


async def test_a_node_monitor_is_attached_again_when_it_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "REDIAL_MIN_S", 0.0)
    scheduler, user = Scheduler(), User()
    info = m.NodeInfo(1, {}, {}, {"python": "3"}, memory="m")
    link = Attaching(scheduler, "node-0", info, user)
    link.start()
    up, said = ("up", "scheduler-1", 1 << 20), ("said", "scheduler-1", [("node-0", 0)])
    assert user.heard == [up, said]
    assert scheduler.infos == [info]
    assert scheduler.infos[0].apps is not info.apps
    scheduler.sides[0].end.close("for a reason")
    link.give_up("this process stood still")
    while len(scheduler.sides) < 2:
        await asyncio.sleep(0)
    assert user.heard == [up, said, ("down", "scheduler-1", "for a reason"), up, said]
    await link.stop("the end")
    assert user.heard[5:] == [("down", "scheduler-1", "the end")]
    assert link.links == {}
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(scheduler.sides) == 2
