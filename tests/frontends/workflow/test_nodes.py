"""What nodes offer workflows, of what a scheduler tells of them."""

from __future__ import annotations

from typing import Any

import pytest

from frontends.workflow.running import nodes
from frontends.workflow.running.errors import NoEngines
from sparrow_py.access.credentials import OPEN
from sparrow_py.errors import InvalidRequest


def node(name: str, state: str = "ready", **attributes: str) -> dict[str, Any]:
    dotted = {key.replace("_", "."): value for key, value in attributes.items()}
    return {"id": name, "state": state, "slots": 4, "resources": {"cpu": 4.0}, "attributes": dotted}


NODES = [
    node("a", workflow_duckdb="1.5", zone="eu"),
    node("b", workflow_duckdb="1.4", workflow_polars="1.40", zone="us"),
    node("c", zone="asia"),
    node("d", state="draining", workflow_scipy="1.17", zone="eu"),
]


class NoTasks:
    """A client that is not to submit anything."""

    def submit_job(self, spec: Any) -> Any:
        raise AssertionError(spec)


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler tells of `NODES`."""
    monkeypatch.setattr(nodes, "asked_nodes", lambda sources, access: NODES)


def offered(*where: str) -> dict[str, nodes.Offer]:
    return nodes.offers(NoTasks(), ["127.0.0.1:1"], OPEN, where)  # type: ignore[arg-type]


def test_engines_have_their_versions_and_nodes_and_those_of_nodes_that_leave_are_none() -> None:
    found = offered()
    assert list(found) == ["duckdb", "polars"]
    assert (found["duckdb"].versions, found["duckdb"].nodes, found["duckdb"].cpus) == (("1.4", "1.5"), ("a", "b"), 4)


def test_only_engines_of_nodes_that_meet_the_predicates_are_planned_with() -> None:
    assert list(offered("zone == us")) == ["duckdb", "polars"]
    assert list(offered("zone == eu")) == ["duckdb"]
    assert offered("zone == us")["duckdb"].nodes == ("b",)
    assert offered("node == a")["duckdb"].versions == ("1.5",)


def test_predicates_that_no_node_meets_are_an_error_and_nothing_is_tried() -> None:
    with pytest.raises(NoEngines, match=r"^none of 4 nodes meets 'zone == eu' and 'zone == us'$"):
        offered("zone == eu", "zone == us")


def test_a_predicate_that_is_none_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"^where: 'zone=eu' is not valid"):
        offered("zone=eu")
