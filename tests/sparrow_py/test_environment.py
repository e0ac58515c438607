"""What clients, clusters and daemons of ours take of SPARROW_… variables, and what they do not."""

from collections.abc import Callable

import pytest

from sparrow_py import AsyncClient, Client, InvalidOption, LocalCluster, SparrowExecutor
from sparrow_py.wire.http_get import http_get_json
from tests.support.waiting import TIMEOUT_S

VARIABLE = "SPARROW_SCHEDULER"


def no_cluster(**_: object) -> None:
    raise AssertionError("an embedded cluster was to be started")


@pytest.fixture
def named(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared cluster is the environment's."""
    monkeypatch.setenv(VARIABLE, f" {','.join(cluster.addresses)},")
    monkeypatch.setattr("sparrow_py.cluster.LocalCluster", no_cluster)


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize("make", [Client, SparrowExecutor])
def test_clients_without_addresses_use_those_of_the_environment(make: Callable[[], Client | SparrowExecutor]) -> None:
    with make() as one:
        assert one.submit(abs, -7).result(TIMEOUT_S) == 7


@pytest.mark.usefixtures("named")
async def test_so_does_one_for_asyncio() -> None:
    async with AsyncClient() as one:
        assert await one.submit(abs, -7) == 7


def test_what_is_given_goes_before_the_environment(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "127.0.0.1:1")
    for given in (cluster, cluster.addresses, cluster.addresses[0]):
        with Client(given, connect_timeout_s=TIMEOUT_S) as one:
            assert one.submit(abs, -7).result(TIMEOUT_S) == 7


@pytest.mark.parametrize("text", ["nowhere", "127.0.0.1:1,file:", "dns:x"])
def test_what_is_wrong_there_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(InvalidOption, match=rf"^{VARIABLE}: "):
        Client()


@pytest.mark.parametrize("text", ["", " ", ","])
def test_nothing_there_is_no_address(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    monkeypatch.setattr("sparrow_py.cluster.LocalCluster", no_cluster)
    with pytest.raises(AssertionError, match="embedded"):
        Client()


@pytest.mark.processes
@pytest.mark.parametrize("in_process", [False, True])
def test_daemons_of_an_embedded_cluster_heed_none_of_them(in_process: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        VARIABLE: "nowhere",
        "SPARROW_SLOTS": "5",
        "SPARROW_ATTR": "wrong",
        "SPARROW_CONFIG": "/no",
    }.items():
        monkeypatch.setenv(name, value)
    with LocalCluster(slots=1, in_process=in_process) as cluster:
        (node,) = http_get_json(cluster.addresses[0], "/v1/nodes")["nodes"]
    assert (node["slots"], node["attributes"]) == (1, {})
