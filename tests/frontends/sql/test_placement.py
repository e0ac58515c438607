"""Which node is asked to hold which partition."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.sql.dataset import Dataset
from frontends.sql.errors import DoesNotFit
from frontends.sql.placement import LiveNode, check_fits, choose, holders, live_nodes
from sparrow_py.errors import SparrowError

PARTITIONS = 30


@st.composite
def clusters(draw: st.DrawFn) -> list[LiveNode]:
    """Nodes on some machines; some of them hold partitions, and some take no tasks."""
    count = draw(st.integers(1, 8))
    return [
        LiveNode(
            f"n{number}",
            f"host{draw(st.integers(0, 4))}",
            draw(st.integers(1, 4)),
            1e12,
            draw(st.booleans()) or number == 0,
            draw(st.frozensets(st.integers(0, PARTITIONS - 1))),
        )
        for number in range(count)
    ]


def after(nodes: list[LiveNode], added: dict[str, list[int]]) -> list[LiveNode]:
    return [
        LiveNode(
            node.id, node.host, node.slots, node.memory_bytes, node.ready, node.partitions | set(added.get(node.id, ()))
        )
        for node in nodes
    ]


@given(clusters(), st.integers(1, 4))
def test_each_partition_is_held_often_enough_and_nothing_is_loaded_twice(nodes: list[LiveNode], replicas: int) -> None:
    added = choose(nodes, PARTITIONS, replicas)
    ready = {node.id: node for node in nodes if node.ready}
    assert set(added) <= set(ready)
    for node, partitions in added.items():
        assert len(set(partitions)) == len(partitions)
        assert not ready[node].partitions & set(partitions)
    before, now = holders(nodes, PARTITIONS), holders(after(nodes, added), PARTITIONS)
    wanted = min(replicas, len(ready))
    assert all(len(held) == max(wanted, len(held_before)) for held, held_before in zip(now, before, strict=True))
    assert choose(after(nodes, added), PARTITIONS, replicas) == {}


@given(st.integers(1, 10), st.integers(1, 4))
def test_an_empty_cluster_is_filled_evenly(count: int, replicas: int) -> None:
    nodes = [LiveNode(f"n{number}", f"host{number}", 2, 1e12, True, frozenset()) for number in range(count)]
    held = [len(partitions) for partitions in choose(nodes, PARTITIONS, replicas).values()]
    assert len(held) == count
    assert max(held) - min(held) <= 1


def test_replicas_are_on_different_machines_if_there_are_some() -> None:
    nodes = [LiveNode(f"n{number}", f"host{number // 2}", 1, 1e12, True, frozenset()) for number in range(6)]
    host = {node.id: node.host for node in nodes}
    for held in holders(after(nodes, choose(nodes, PARTITIONS, 3)), PARTITIONS):
        assert {host[node] for node in held} == {"host0", "host1", "host2"}


def test_nodes_without_the_app_and_odd_attributes_are_passed_over(tpch_hundredth: Path) -> None:
    dataset = Dataset(tpch_hundredth)

    def entry(node: str, held: str, **more: object) -> dict[str, object]:
        attributes = {dataset.attribute: held}
        return {"id": node, "address": "h:1", "slots": 2, "apps": {"sql": ""}, "resources": {}, "state": "ready",
                "attributes": attributes, **more}  # fmt: skip

    entries = [entry("b", "1,x,2"), entry("a", ""), entry("c", "3", apps={}), entry("d", "4", state="draining")]
    nodes = live_nodes(entries, dataset)
    assert [(node.id, sorted(node.partitions)) for node in nodes] == [("a", []), ("b", [1, 2]), ("d", [4])]
    assert holders(nodes, 5) == [[], ["b"], ["b"], [], []]


def test_a_placement_that_does_not_fit_a_machine_s_memory_is_refused(tpch_hundredth: Path) -> None:
    dataset = Dataset(tpch_hundredth)
    needed = 30 * dataset.manifest.held_bytes * 2 + dataset.manifest.whole_bytes * 2

    def two_nodes(memory_bytes: float) -> list[LiveNode]:
        return [LiveNode(name, "one", 1, memory_bytes, True, frozenset()) for name in ("a", "b")]

    enough, less = two_nodes(needed / 0.79), two_nodes(needed / 0.81)
    check_fits(dataset, enough, choose(enough, PARTITIONS, 2))
    check_fits(dataset, less, choose(less, PARTITIONS, 1))
    with pytest.raises(DoesNotFit, match=r"^scale: 0\.01 does not fit: the nodes at one would hold about 0\.02 GB"):
        check_fits(dataset, less, choose(less, PARTITIONS, 2))


def test_a_cluster_without_sql_executors_is_an_error(tpch_hundredth: Path) -> None:
    with pytest.raises(SparrowError, match="no node monitor that runs the app sql is connected"):
        check_fits(Dataset(tpch_hundredth), [], {})
