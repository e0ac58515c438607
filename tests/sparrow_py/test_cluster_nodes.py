"""What clients and embedded clusters say of nodes, and how they wait for them."""

import dataclasses
import json
import math
from typing import Any

import pytest

from sparrow_py import (
    AsyncClient,
    Client,
    InvalidRequest,
    LinkError,
    LocalCluster,
    NodeStatus,
    SchedulerHere,
    SparrowExecutor,
    executor,
)
from sparrow_py.calls import APP, RUNTIME
from sparrow_py.cluster_nodes import LOOK_MAX_S, LOOK_MIN_S, Awaited, decode_listing, merged
from tests.conftest import SLOTS
from tests.support.waiting import TIMEOUT_S


async def test_the_nodes_of_a_cluster(cluster: LocalCluster, client: Client) -> None:
    nodes = client.nodes()
    assert [(node.id, node.slots, node.state, node.is_ready) for node in nodes] == [
        (f"node-{number}", SLOTS // 2, "ready", True) for number in range(2)
    ]
    assert all(node.apps[APP] == RUNTIME and node.resources["cpu"] > 0 and node.address for node in nodes)
    assert [node.id for node in cluster.nodes()] == ["node-0", "node-1"]
    async with AsyncClient(cluster) as other:
        assert [node.id for node in await other.nodes()] == ["node-0", "node-1"]
        await other.wait_for_nodes(2, TIMEOUT_S)
        with pytest.raises(TimeoutError, match="2 of 3 nodes are ready after 0 s"):
            await other.wait_for_nodes(3, 0)


def test_nodes_are_waited_for(cluster: LocalCluster, client: Client) -> None:
    for waiting in (cluster, client):
        waiting.wait_for_nodes(2)
        waiting.wait_for_nodes(1, timeout_s=TIMEOUT_S)
        waiting.wait_for_nodes(1, math.inf)
        with pytest.raises(TimeoutError, match=r"2 of 3 nodes are ready after 0\.01 s"):
            waiting.wait_for_nodes(3, 0.01)
        for wrong in (-1, 1.5, "2"):
            with pytest.raises(InvalidRequest, match=r"^count: "):
                waiting.wait_for_nodes(wrong)  # type: ignore[arg-type]


def test_a_scheduler_in_this_process_has_none_until_they_come() -> None:
    with Client(SchedulerHere()) as client:
        assert client.nodes() == []
        with pytest.raises(TimeoutError, match="0 of 1 node is ready"):
            client.wait_for_nodes(1, 0)
    with pytest.raises(RuntimeError, match="closed"):
        client.nodes()


def test_a_node_is_listed_once_and_what_each_scheduler_has_there_is_added() -> None:
    one, other = NodeStatus("a", 4, busy=1, reservations=2), NodeStatus("a", 4, busy=2)
    assert merged([[NodeStatus("b", 1), one], [other]]) == [dataclasses.replace(one, busy=3), NodeStatus("b", 1)]


def test_nodes_count_that_every_scheduler_has_and_that_are_ready() -> None:
    ready, cordoned = NodeStatus("a", 1), NodeStatus("b", 1, state="cordoned")
    assert Awaited(1, 0).are_there([[ready, cordoned], [ready]])
    assert not Awaited(2, None).are_there([[ready, cordoned]])
    assert not Awaited(1, None).are_there([[ready], []])
    assert not Awaited(1, None).are_there([])
    with pytest.raises(TimeoutError, match="no scheduler answers after 0 s"):
        Awaited(1, 0).are_there([])


def test_schedulers_are_asked_less_and_less_often() -> None:
    awaited = Awaited(1, None)
    pauses_s = [awaited.pause_s() for _ in range(100)]
    assert pauses_s == sorted(pauses_s) and pauses_s[0] < 2 * LOOK_MIN_S and pauses_s[-1] == LOOK_MAX_S
    assert sum(pauses_s[:20]) < 1


@pytest.mark.parametrize("body", [b"", b"{}", b'{"nodes": 1}', b'{"nodes": [{"id": "a"}]}', b"<html>"])
def test_what_is_no_scheduler_is_named(body: bytes) -> None:
    with pytest.raises(LinkError, match="what answers at here:1 is not a scheduler"):
        decode_listing(body, "here:1")


def test_fields_of_newer_schedulers_are_left_out() -> None:
    node: dict[str, Any] = {"id": "a", "slots": 2, "mood": "fair"}
    assert decode_listing(json.dumps({"nodes": [node], "more": 1}), "") == [NodeStatus("a", 2)]


def test_an_executor_has_as_many_workers_as_there_are_slots(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SparrowExecutor(cluster) as pool:
        assert pool._max_workers == SLOTS
        monkeypatch.setattr(pool._client, "nodes", lambda: [NodeStatus("a", 7, apps={APP: RUNTIME})])
        assert pool._max_workers == SLOTS, "it was asked for within the second"
        monkeypatch.setattr(executor, "WORKERS_FRESH_S", 0.0)
        pool._workers_until_s = 0.0
        assert pool._max_workers == 7
        others = [NodeStatus("b", 3, "cordoned", apps={APP: RUNTIME}), NodeStatus("c", 5, apps={"noop": ""})]
        monkeypatch.setattr(pool._client, "nodes", lambda: [*others, NodeStatus("a", 2, apps={APP: RUNTIME})])
        assert pool._max_workers == 2
        monkeypatch.undo()
        pool._workers_until_s = 0.0
    assert pool._max_workers == 2, "after its end as before"


def test_one_whose_cluster_has_no_node_has_one_worker() -> None:
    with SparrowExecutor(SchedulerHere()) as pool:
        assert pool._max_workers == 1
