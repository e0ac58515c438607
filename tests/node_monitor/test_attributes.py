"""Attributes that executors give their node: what the core makes of them, and what schedulers are told."""

from __future__ import annotations

import pytest

from node_monitor.attributes import NODE_ATTRIBUTES_MAX
from node_monitor.executors.apps import offered_apps
from node_monitor.executors.executor_state import AppPlan
from node_monitor.options import NodeMonitorOptions
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore


class Rig(NodeCore):
    """A node of the operator's zone eu, with executors p0 and p1, and the schedulers s and t."""

    def __init__(self) -> None:
        plans = [AppPlan("pool", gives_attributes=True), AppPlan("mute")]
        super().__init__(2, plans, schedulers=("s", "t"), attr=("zone=eu",))

    def says(self, executor: str, **attributes: str) -> None:
        self.core.executor_says(executor, x.Attributes(attributes), 0.0)

    def told(self) -> list[tuple[str, dict[str, str]]]:
        """(scheduler, attributes) of each time that one was told."""
        return [(scheduler, changed.node.attributes) for scheduler, changed in self.outbox.take(m.NodeChanged)]


def test_only_executors_of_apps_that_the_operator_names_may_say_something() -> None:
    rig = Rig()
    rig.core.executor_up("m0", "mute", 1, 0.0)
    with pytest.raises(LinkError, match="app 'mute' may give this node no attributes; attribute_apps"):
        rig.says("m0", data="1")
    assert not rig.told() and rig.core.info.attributes == {"zone": "eu"}
    options = NodeMonitorOptions(executor=("words=words", "more=more"), attribute_apps=("more", "nothing"))
    assert [name for name, app in offered_apps(options).items() if app.plan.gives_attributes] == ["more"]


def test_all_schedulers_are_told_what_an_executor_adds_to_the_node() -> None:
    rig = Rig()
    rig.says("p0", data="1,2")
    expected = {"zone": "eu", "data": "1,2"}
    assert rig.told() == [("s", expected), ("t", expected)]
    assert rig.core.info.attributes == expected


def test_nobody_is_told_what_is_known_already() -> None:
    rig = Rig()
    rig.says("p0", data="1")
    rig.told()
    rig.says("p0", data="1")
    assert rig.told() == []


def test_what_an_executor_says_replaces_what_it_said() -> None:
    rig = Rig()
    rig.says("p0", data="1", more="x")
    rig.says("p0", data="2")
    assert rig.told()[-1] == ("t", {"zone": "eu", "data": "2"})
    rig.says("p0")
    assert rig.told()[-1] == ("t", {"zone": "eu"})


def test_attributes_go_with_their_executor() -> None:
    rig = Rig()
    rig.says("p0", data="1")
    rig.says("p1", other="2")
    rig.told()
    rig.core.executor_down("p0", "it was killed", 1.0)
    assert rig.told() == [(scheduler, {"zone": "eu", "other": "2"}) for scheduler in ("s", "t")]
    rig.core.executor_down("p1", "it was killed", 1.0)
    assert rig.told() == [(scheduler, {"zone": "eu"}) for scheduler in ("s", "t")]


def test_the_operator_has_the_last_word_and_of_executors_the_later_one() -> None:
    rig = Rig()
    rig.says("p1", data="of p1")
    rig.says("p0", data="of p0", zone="us")
    assert rig.core.info.attributes == {"zone": "eu", "data": "of p1"}
    rig.core.executor_down("p1", "it was killed", 1.0)
    assert rig.core.info.attributes == {"zone": "eu", "data": "of p0"}


def test_a_scheduler_that_comes_later_is_told() -> None:
    rig = Rig()
    rig.core.scheduler_up("u")
    assert rig.told() == []
    rig.says("p0", data="1")
    rig.told()
    rig.core.scheduler_up("v")
    assert rig.told() == [("v", {"zone": "eu", "data": "1"})]


def test_what_else_the_node_offers_is_said_with_the_attributes() -> None:
    rig = Rig()
    rig.says("p0", data="1")
    (_, changed), _ = rig.outbox.take(m.NodeChanged)
    assert (changed.node.slots, changed.node.apps) == (2, {"pool": "", "mute": ""})


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"": "x"}, "non-empty text"),
        ({"a" * 257: "x"}, "at most 256 bytes"),
        ({"a\n": "x"}, "printable"),
        ({"a": "x" * (x.ATTRIBUTE_BYTES_MAX + 1)}, "at most 4096 bytes"),
        ({"a": "x\ny"}, "printable"),
    ],
)
def test_attributes_beyond_the_limits_cut_the_executor_off(attributes: dict[str, str], reason: str) -> None:
    rig = Rig()
    rig.says("p0", data="1")
    rig.told()
    with pytest.raises(LinkError, match=reason):
        rig.says("p0", **attributes)
    assert rig.told() == []
    assert rig.core.info.attributes == {"zone": "eu", "data": "1"}


def test_the_executors_of_a_node_may_not_give_it_too_many_together() -> None:
    rig = Rig()
    rig.core.executor_up("p2", "pool", 1, 0.0)
    half = NODE_ATTRIBUTES_MAX // 2
    for executor in ("p0", "p1"):
        rig.says(executor, **{f"{executor} {number}": "" for number in range(half)})
    with pytest.raises(LinkError, match=f"{NODE_ATTRIBUTES_MAX + 1} attributes; at most {NODE_ATTRIBUTES_MAX}"):
        rig.says("p2", one="more")
    assert len(rig.core.info.attributes) == NODE_ATTRIBUTES_MAX + 1
    rig.core.executor_down("p0", "it was killed", 1.0)
    rig.says("p2", one="more")
    assert rig.core.info.attributes["one"] == "more"


def test_an_app_whose_executors_come_by_themselves_is_offered_once_one_has_come() -> None:
    """Before that nothing could run its tasks."""
    plans = [AppPlan("pool"), AppPlan("guest", "r1", supervised=False, awaited=True)]
    node = NodeCore(1, plans, executors=0)
    core, outbox = node.core, node.outbox
    assert core.node.apps == {"pool": ""}, "one that is started here will come"
    core.executor_up("g0", "guest", 1, 0.0)
    ((_, changed),) = outbox.take(m.NodeChanged)
    assert changed.node.apps == {"pool": "", "guest": "r1"}
    core.executor_down("g0", "it went", 0.0)
    core.executor_up("g1", "guest", 1, 0.0)
    assert outbox.take(m.NodeChanged) == [], "its owner starts it again"
    core.scheduler_up("late")
    assert outbox.take(m.NodeChanged) == [("late", changed)]
