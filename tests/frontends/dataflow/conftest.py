"""Peers of programs over arrays, with links between them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import LocalCluster
from tests.support.compiled_cache import session_cache  # noqa: F401
from tests.support.dataflow_peers import Peer, open_files
from tests.support.suites import rest_after

MakePeer = Callable[..., Peer]


@pytest.fixture
def peers(garbage_before: None) -> Iterator[MakePeer]:
    """Makes peers, which are closed; nothing of them is left then."""
    gc.collect()
    before = open_files()
    made: list[Peer] = []

    def make(*arguments: Any, **options: Any) -> Peer:
        made.append(Peer(*arguments, **options))
        return made[-1]

    yield make
    for peer in made:
        peer.links.close(0)
        assert not peer.memory.files, "descriptors of arrays that are gone"
    gc.collect()
    assert open_files() == before


@pytest.fixture(params=["unix", "tcp"])
def pair(request: pytest.FixtureRequest, peers: MakePeer, tmp_path: Path) -> tuple[Peer, Peer]:
    """Two peers, 0 and 1, with a link."""
    one, other = peers(0, request.param), peers(1, request.param)
    other.links.dial(0, one.links.listen(tmp_path))
    return one, other


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node monitor of two slots."""
    with LocalCluster(slots=2, log_dir=tmp_path_factory.mktemp("logs")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two node monitors of one slot, for programs whose workers are killed."""
    with LocalCluster(node_monitors=2, slots=1, log_dir=tmp_path_factory.mktemp("logs")) as cluster:
        yield cluster


@pytest.fixture(params=rest_after(1, "local", "templates", "central"))
def plane(request: pytest.FixtureRequest) -> str:
    """A plane with workers."""
    return str(request.param)


@pytest.fixture(
    params=rest_after(
        2, ("one node", "local"), ("one node", "templates"), ("two nodes, TCP", "local"),
        ("two nodes, TCP", "templates"), ("one node", "central"), ("two nodes, TCP", "central"),
    ),
    ids="-".join,
)  # fmt: skip
def where(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A cluster whose workers may be killed, the transport, and the plane."""
    return _place(request)


@pytest.fixture(
    params=rest_after(
        1, ("one node", "local"), ("two nodes, TCP", "local"), ("two nodes, TCP", "templates"),
        ("two nodes, TCP", "central"),
    ),
    ids="-".join,
)  # fmt: skip
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The same, where each plane on two nodes is enough."""
    return _place(request)


def _place(request: pytest.FixtureRequest) -> dict[str, Any]:
    nodes, plane = request.param
    if nodes == "one node":
        return {"cluster": request.getfixturevalue("small"), "plane": plane}
    return {"cluster": request.getfixturevalue("two_nodes"), "transport": "tcp", "plane": plane}
