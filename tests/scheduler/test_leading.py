"""Who leads a plane, of one scheduler message by message: `scheduler.leading` alone."""

from __future__ import annotations

import pytest

from scheduler.leading import FORCED_RAISES_MAX, TRANSITIONS, Leading, State
from sparrow_py.errors import LinkError
from sparrow_py.timing.timers import Timers
from sparrow_py.wire import messages as m

ASKING, CLAIMING, LEADING = State.ASKING, State.CLAIMING, State.LEADING
STANDING_BY, DEPOSED, REFUSED = State.STANDING_BY, State.DEPOSED, State.REFUSED
SETTLING_S, TAKEOVER_S = 2.0, 3.0


class Rig:
    """The scheduler "m", with nodes of which a test says what they say."""

    def __init__(self, *nodes: str, standby_of: str = "", nodes_expected: int = 0) -> None:
        self.timers, self.now_s = Timers(), 0.0
        self.sent: list[tuple[str, int]] = []
        self.changes: list[bool] = []
        self.refused = False
        self.leading = Leading(
            m.FLOW, "m", self._send, self.timers,
            standby_of=standby_of, takeover_s=TAKEOVER_S, settling_s=SETTLING_S, nodes_expected=nodes_expected,
        )  # fmt: skip
        self.leading.changed = lambda leads, _: self.changes.append(leads)
        self.leading.refused = self._refuse
        for node in nodes:
            self.up(node)

    def _send(self, node: str, message: m.Lead) -> None:
        assert message.plane == m.FLOW
        self.sent.append((node, message.epoch))

    def _refuse(self) -> None:
        self.refused = True

    def up(self, node: str) -> None:
        self.leading.node_up(node, self.now_s)

    def down(self, node: str) -> None:
        self.leading.node_down(node, self.now_s)

    def says(self, node: str, epoch: int = 0, leader: str = "", linked: bool = False) -> None:
        self.leading.heard(node, m.Leading(m.FLOW, epoch, leader, linked, f"{leader}:1"), self.now_s)

    def accept(self, *nodes: str) -> None:
        for node in nodes:
            self.says(node, self.leading.epoch, "m", linked=True)

    def wait(self, seconds: float) -> None:
        """What is due until then happens."""
        until_s = self.now_s + seconds
        while (deadline_s := self.timers.next_deadline_s()) is not None and deadline_s <= until_s:
            self.now_s = max(self.now_s, deadline_s)
            self.timers.run_due(self.now_s)
        self.now_s = until_s

    def take(self) -> list[tuple[str, int]]:
        sent, self.sent = self.sent, []
        return sent

    @property
    def state(self) -> State:
        return self.leading.state


def leader(*nodes: str, standby_of: str = "", epoch: int = 0) -> Rig:
    """One that leads these nodes, which knew this epoch."""
    rig = Rig(*nodes, standby_of=standby_of)
    for node in nodes:
        rig.says(node, epoch)
    rig.wait(SETTLING_S)
    if standby_of:
        rig.wait(TAKEOVER_S)
    rig.accept(*nodes)
    assert rig.state is LEADING and rig.changes == [True]
    rig.take()
    return rig


def test_without_nodes_it_waits() -> None:
    rig = Rig()
    rig.wait(100.0)
    assert rig.state is ASKING and not rig.sent


def test_once_all_nodes_that_it_expects_have_answered_it_waits_for_no_others() -> None:
    rig = Rig("a", nodes_expected=2)
    rig.says("a")
    assert rig.state is ASKING
    rig.up("b")
    assert rig.state is ASKING
    rig.says("b")
    assert rig.state is CLAIMING
    rig.accept("a", "b")
    assert rig.state is LEADING and rig.now_s == 0.0


def test_nodes_that_it_expects_and_that_do_not_come_are_waited_for_as_others_are() -> None:
    rig = Rig("a", nodes_expected=2)
    rig.says("a")
    rig.wait(SETTLING_S)
    assert rig.state is CLAIMING


def test_an_expected_node_that_is_gone_again_is_waited_for() -> None:
    rig = Rig("a", "b", nodes_expected=2)
    rig.says("a")
    rig.down("b")
    assert rig.state is ASKING
    rig.wait(SETTLING_S)
    assert rig.state is CLAIMING


def test_whoever_expects_nodes_gives_way_to_the_scheduler_that_leads_them() -> None:
    rig = Rig("a", "b", nodes_expected=2, standby_of="any")
    rig.says("a")
    rig.says("b", 3, "other", linked=True)
    assert rig.state is STANDING_BY


def test_it_asks_each_node_and_claims_once_it_has_waited_for_others() -> None:
    rig = Rig("a", "b")
    rig.says("a")
    rig.says("b")
    assert rig.take() == [("a", 0), ("b", 0)] and rig.state is ASKING
    assert "asks 2 nodes" in rig.leading.why_not()
    rig.wait(SETTLING_S)
    assert rig.state is CLAIMING and rig.take() == [("a", 1), ("b", 1)]
    assert "0 of 2 nodes have accepted it with epoch 1" in rig.leading.why_not()


def test_it_claims_above_the_highest_epoch_that_a_node_knows() -> None:
    rig = Rig("a", "b")
    rig.says("a", 3, "gone")
    rig.says("b", 7, "gone")
    rig.wait(SETTLING_S)
    assert rig.leading.epoch == 8


def test_it_does_not_claim_before_more_than_half_of_the_nodes_have_answered() -> None:
    rig = Rig("a", "b")
    rig.says("a")
    rig.wait(SETTLING_S)
    assert rig.state is ASKING
    rig.says("b")
    assert rig.state is CLAIMING


@pytest.mark.parametrize(("nodes", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_it_leads_once_more_than_half_of_the_linked_nodes_have_accepted_it(nodes: int, needed: int) -> None:
    names = [f"n{number}" for number in range(nodes)]
    rig = Rig(*names)
    for name in names:
        rig.says(name)
    rig.wait(SETTLING_S)
    rig.accept(*names[: needed - 1])
    assert rig.state is CLAIMING and not rig.changes
    rig.accept(names[needed - 1])
    assert rig.state is LEADING and rig.changes == [True] and not rig.leading.why_not()


def test_a_node_that_has_accepted_counts_no_more_once_it_is_gone_and_one_that_has_not_is_in_the_way_no_more() -> None:
    rig = Rig("a", "b", "c")
    for node in "abc":
        rig.says(node)
    rig.wait(SETTLING_S)
    rig.accept("a")
    rig.down("a")
    rig.accept("b")
    assert rig.state is CLAIMING
    rig.down("c")
    assert rig.state is LEADING


def test_a_node_that_comes_while_it_claims_or_leads_is_told_at_once() -> None:
    rig = leader("a")
    rig.up("b")
    assert rig.take() == [("b", 1)]
    assert rig.leading.accepted == 1
    rig.accept("b")
    assert rig.leading.accepted == 2


def test_one_that_finds_another_which_leads_is_refused_by_its_name_and_both_ways_out() -> None:
    rig = Rig("a")
    rig.says("a", 4, "other", linked=True)
    assert rig.state is REFUSED and rig.refused and not rig.changes
    line = rig.leading.why_refused()
    assert "other at other:1, epoch 4" in line and "--standby-of any" in line and "sparrow lead --force" in line
    assert "\n" not in line


def test_a_leader_of_before_that_is_not_linked_is_no_reason_to_be_refused() -> None:
    rig = Rig("a")
    rig.says("a", 4, "other", linked=False)
    rig.wait(SETTLING_S)
    assert rig.state is CLAIMING and rig.leading.epoch == 5


@pytest.mark.parametrize(("standby_of", "state"), [("any", STANDING_BY), ("p:1", STANDING_BY), ("q:1", REFUSED)])
def test_a_standby_stands_by_for_whom_it_is_told(standby_of: str, state: State) -> None:
    rig = Rig("a", standby_of=standby_of)
    rig.says("a", 4, "p", linked=True)
    assert rig.state is state


def test_a_standby_leads_once_most_nodes_have_lost_the_leader_for_long_enough() -> None:
    rig = Rig("a", "b", "c", standby_of="any")
    for node in "abc":
        rig.says(node, 4, "p", linked=True)
    assert "another scheduler does (p at p:1, epoch 4)" in rig.leading.why_not()
    rig.wait(100.0)
    rig.says("a", 4, "p")
    rig.wait(100.0)
    assert rig.state is STANDING_BY
    rig.says("b", 4, "p")
    rig.wait(TAKEOVER_S - 0.1)
    assert rig.state is STANDING_BY
    rig.wait(0.1)
    assert rig.state is CLAIMING and rig.leading.epoch == 5
    rig.accept("a", "b")
    assert rig.state is LEADING


def test_a_leader_that_comes_back_in_time_goes_on() -> None:
    rig = Rig("a", standby_of="any")
    rig.says("a", 4, "p", linked=True)
    rig.says("a", 4, "p")
    rig.wait(TAKEOVER_S - 0.1)
    rig.says("a", 4, "p", linked=True)
    rig.wait(TAKEOVER_S)
    assert rig.state is STANDING_BY
    rig.says("a", 4, "p")
    rig.wait(TAKEOVER_S)
    assert rig.state is CLAIMING


def test_a_standby_that_has_lost_its_nodes_does_not_take_that_for_the_leaders_end() -> None:
    rig = Rig("a", standby_of="any")
    rig.says("a", 4, "p", linked=True)
    rig.down("a")
    rig.wait(100.0)
    rig.up("a")
    rig.wait(100.0)
    assert rig.state is STANDING_BY
    rig.says("a", 4, "p")
    rig.wait(TAKEOVER_S)
    assert rig.state is CLAIMING


def test_a_standby_that_finds_no_leader_gives_it_the_time_to_come() -> None:
    rig = Rig("a", standby_of="any")
    rig.says("a")
    rig.wait(SETTLING_S)
    assert rig.state is STANDING_BY
    rig.wait(TAKEOVER_S - 0.1)
    assert rig.state is STANDING_BY
    rig.wait(0.1)
    assert rig.state is CLAIMING


def test_a_leader_that_hears_of_a_higher_epoch_is_deposed_tells_its_nodes_and_stands_by() -> None:
    rig = leader("a", "b")
    rig.says("a", 2, "other", linked=True)
    assert rig.state is DEPOSED and rig.changes == [True, False] and rig.leading.epoch == 0
    assert rig.take() == [("a", 0), ("b", 0)]
    assert not rig.refused, "it has led, and so is as good a standby as any"
    rig.says("a", 2, "other")
    rig.says("b", 2, "other")
    rig.wait(TAKEOVER_S)
    assert rig.state is CLAIMING and rig.leading.epoch == 3


def test_a_leader_that_hears_of_a_higher_epoch_whose_leader_is_not_linked_there_claims_again_above_it() -> None:
    rig = leader("a", "b")
    rig.up("c")
    rig.says("c", 9, "gone")
    assert rig.state is LEADING and rig.changes == [True]
    assert rig.leading.epoch == 10
    assert rig.take() == [("c", 1), ("a", 10), ("b", 10), ("c", 10)]


@pytest.mark.parametrize(("other", "state"), [("l", CLAIMING), ("n", REFUSED)])
def test_of_two_that_claim_the_same_epoch_the_one_with_the_greater_name_claims_again(other: str, state: State) -> None:
    rig = Rig("a", "b")
    rig.says("a")
    rig.says("b")
    rig.wait(SETTLING_S)
    rig.take()
    rig.says("a", 1, other, linked=True)
    assert rig.state is state and rig.refused is (state is REFUSED)
    assert rig.take() == [("a", 2), ("b", 2)] if state is CLAIMING else [("a", 0), ("b", 0)]


def test_what_a_node_said_before_it_was_told_of_a_higher_epoch_does_not_count() -> None:
    rig = Rig("a", "b", "c")
    for node in "abc":
        rig.says(node)
    rig.wait(SETTLING_S)
    rig.says("a", 5, "gone")
    assert rig.leading.epoch == 6
    rig.says("b", 1, "m", linked=True)
    rig.says("c", 1, "m", linked=True)
    rig.says("c", 5, "late", linked=True)
    assert rig.state is CLAIMING and rig.leading.accepted == 0


def test_a_leader_without_nodes_asks_again_who_leads_once_that_lasts() -> None:
    rig = leader("a", "b")
    rig.down("a")
    rig.down("b")
    rig.wait(TAKEOVER_S - 0.1)
    assert rig.state is LEADING
    rig.wait(0.1)
    assert rig.state is ASKING and rig.changes == [True, False]
    rig.up("a")
    rig.up("b")
    rig.says("a", 1, "m")
    assert rig.state is ASKING
    rig.says("b", 1, "m")
    assert rig.state is CLAIMING and rig.leading.epoch == 2, "all nodes that it knew have answered"


def test_a_leader_whose_nodes_come_back_in_time_leads_on() -> None:
    rig = leader("a")
    rig.down("a")
    rig.wait(TAKEOVER_S - 0.1)
    rig.up("a")
    rig.wait(100.0)
    assert rig.state is LEADING and rig.take() == [("a", 1)]


def test_a_leader_that_was_alone_is_deposed_if_another_leads_the_nodes_by_then() -> None:
    rig = leader("a")
    rig.down("a")
    rig.wait(TAKEOVER_S)
    rig.up("a")
    rig.says("a", 2, "other", linked=True)
    assert rig.state is DEPOSED


@pytest.mark.parametrize("standby_of", ["", "any"])
def test_an_order_makes_it_claim_above_the_leader(standby_of: str) -> None:
    rig = Rig("a", "b", standby_of=standby_of)
    rig.says("a", 4, "p", linked=True)
    rig.says("b", 4, "p", linked=True)
    rig.take()
    assert rig.leading.force(rig.now_s)
    assert rig.take() == [("a", 5), ("b", 5)]
    rig.says("a", 6, "p", linked=True)
    assert rig.state is CLAIMING and rig.leading.epoch == 7
    rig.accept("a", "b")
    assert rig.state is LEADING and not rig.leading.force(rig.now_s)


def test_an_order_that_meets_another_order_gives_up_in_the_end() -> None:
    rig = Rig("a", standby_of="any")
    rig.says("a", 4, "p", linked=True)
    rig.leading.force(rig.now_s)
    for _ in range(FORCED_RAISES_MAX + 1):
        assert rig.state is CLAIMING
        rig.says("a", rig.leading.epoch + 1, "p", linked=True)
    assert rig.state is STANDING_BY


@pytest.mark.parametrize("epoch", [-1, m.LEAD_EPOCH_MAX])
def test_an_epoch_that_cannot_be_ends_the_nodes_link(epoch: int) -> None:
    with pytest.raises(LinkError, match=f"epoch {epoch}"):
        Rig("a").says("a", epoch, "p")


def test_what_is_said_of_other_planes_is_not_for_it() -> None:
    rig = Rig("a")
    rig.leading.heard("a", m.Leading("another", 4, "p", True), 0.0)
    assert rig.state is ASKING


def on_another_plane(rig: Rig, *nodes: str, linked: bool = True) -> None:
    for node in nodes:
        rig.leading.heard(node, m.Leading("another", 4, "p", linked, "p:1"), rig.now_s)


def claims(*nodes: str) -> Rig:
    rig = Rig(*nodes)
    for node in nodes:
        rig.says(node)
    rig.wait(SETTLING_S)
    assert rig.state is State.CLAIMING
    return rig


def test_one_whose_nodes_are_led_on_another_plane_is_refused_by_its_name() -> None:
    rig = claims("a", "b", "c")
    on_another_plane(rig, "a")
    assert not rig.refused and "; 1 are led on plane another (p at p:1, epoch 4)" in rig.leading.why_not()
    on_another_plane(rig, "b")
    assert rig.refused and rig.state is State.REFUSED
    assert "another plane places the tasks of these nodes: another, led by p at p:1" in rig.leading.why_refused()


def test_nodes_that_another_plane_leads_no_more_are_claimed_again() -> None:
    rig = claims("a", "b", "c")
    on_another_plane(rig, "a")
    rig.take()
    on_another_plane(rig, "a", linked=False)
    assert rig.take() == [("a", rig.leading.epoch)]


def test_a_leader_whose_nodes_are_led_on_another_plane_by_now_leads_no_more() -> None:
    rig = leader("a", "b", "c")
    on_another_plane(rig, "a", "b")
    assert rig.state is State.DEPOSED and rig.changes == [True, False]


def test_every_state_says_what_may_follow() -> None:
    assert set(TRANSITIONS) == set(State)
