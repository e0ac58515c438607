"""The nodes that a scheduler knows: which of them may run a kind of stage, and why none may."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.book import nodes as book_nodes
from scheduler.book.kinds import Kind
from scheduler.book.nodes import Node, Nodes
from sparrow_py.constraints import parse
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import node_info


def kind_of(**fields: Any) -> Kind:
    message = submission(**fields)
    return Kind.of(message.stages[0], message.avoid_by)


def nodes_of(**infos: m.NodeInfo) -> Nodes:
    nodes = Nodes()
    for name, info in infos.items():
        nodes.add(Node(name, info))
    return nodes


EU, GPU = (parse("where", "zone == eu"),), {"gpu": 1.0}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["a", "b", "c"]),
        ({"app": "other"}, ["c"]),
        ({"app": "other", "runtime": "2"}, ["c"]),
        ({"app": "other", "runtime": "3"}, []),
        ({"where": EU}, ["a"]),
        ({"where": (parse("where", "node in b, c"),)}, ["b", "c"]),
        ({"demand": GPU}, ["b"]),
        ({"demand": GPU, "where": EU}, []),
    ],
    ids=str,
)
def test_nodes_that_have_all_that_a_kind_asks_for(fields: dict[str, Any], names: list[str]) -> None:
    nodes = nodes_of(
        a=node_info(attributes={"zone": "eu"}),
        b=node_info(resources={"gpu": 2.0}),
        c=node_info(apps={"many": "", "other": "2"}),
    )
    kind = kind_of(**fields)
    assert nodes.eligible(kind) == names and nodes.eligible_set(kind) == set(names)
    assert nodes.could_run(kind) == bool(names) and (nodes.why_none_could(kind) is None) == bool(names)
    assert nodes.could_run(kind, ["a"]) == ("a" in names) and not nodes.could_run(kind, ["gone"])


@pytest.mark.parametrize("state", [m.CORDONED, m.DRAINING])
def test_a_node_that_wants_no_tasks_is_not_eligible_but_could_run_them(state: str) -> None:
    nodes, kind = nodes_of(a=node_info()), kind_of()
    assert nodes.eligible(kind) == ["a"]
    nodes["a"].state = state
    nodes.changed()
    assert nodes.eligible(kind) == [] and nodes.could_run(kind) and nodes.why_none_could(kind) is None


def test_a_node_without_slots_is_not_eligible() -> None:
    assert nodes_of(a=node_info(0)).eligible(kind_of()) == []


def test_eligible_nodes_are_found_anew_once_a_node_comes_goes_or_changes() -> None:
    nodes, kind = nodes_of(a=node_info(), b=node_info()), kind_of()
    assert nodes.eligible(kind) is nodes.eligible(kind)
    nodes["b"].learn(node_info(apps={}))
    nodes.changed()
    assert nodes.eligible(kind) == ["a"]
    nodes.add(Node("c", node_info()))
    assert nodes.eligible(kind) == ["a", "c"] and nodes.eligible_set(kind) == {"a", "c"}
    assert nodes.remove("a").id == "a" and nodes.eligible(kind) == ["c"]


def test_eligible_nodes_of_many_kinds_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_nodes, "KINDS_MAX", 3)
    nodes = nodes_of(a=node_info())
    for number in range(10):
        assert nodes.eligible_set(kind_of(demand={"cpu": float(number)})) == (set() if number else {"a"})
        assert len(nodes._eligible) <= 3 and len(nodes._eligible_sets) <= 3


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({"app": "none"}, "app", "no node monitor runs the app 'none'; apps offered: many, python"),
        ({"app": "python", "runtime": "3.9"}, "runtime", "the client's python is 3.9 and the node monitors' is 3.11"),
        ({"demand": {"gpu": 8.0}}, "demand", "no node monitor satisfies 8 gpu (they have: 0 gpu; 2 gpu)"),
        (
            {"where": (parse("where", "zone == mars"),)},
            "where",
            "satisfies zone == mars (they have: zone eu; zone unset)",
        ),
    ],
    ids=str,
)
def test_why_no_node_could_names_the_field_and_what_nodes_have(fields: dict[str, Any], field: str, told: str) -> None:
    nodes = nodes_of(
        a=node_info(attributes={"zone": "eu"}, apps={"many": "", "python": "3.11"}),
        b=node_info(resources={"gpu": 2.0}, apps={"many": "", "python": "3.11"}),
    )
    why = nodes.why_none_could(kind_of(**fields))
    assert why is not None and why[0] == field and told in why[1]


def test_executors_that_do_not_start_are_the_reason_only_where_nothing_else_is_wrong_with_the_node() -> None:
    withdrawn = node_info(apps={}, withdrawn={"many": "exited with code 1"})
    nodes = nodes_of(a=withdrawn, b=withdrawn)
    assert nodes.why_none_could(kind_of()) == (
        "",
        "the executors of app 'many' do not start on a (nor on 1 more): exited with code 1",
    )
    assert nodes.why_withdrawn(kind_of(demand={"gpu": 1.0})) == "" and nodes.why_withdrawn(kind_of(app="other")) == ""


def test_where_no_node_is_connected_nothing_is_wrong_with_a_job() -> None:
    assert Nodes().why_none_could(kind_of()) is None and not Nodes().could_run(kind_of())
