"""The clients that adapters to other libraries use (`sparrow_py.kept_clients`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparrow_py import Client, InvalidRequest, LocalCluster, kept_clients
from sparrow_py.kept_clients import client_for, close_clients

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def none_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test keeps ends with it; what others keep it does not see."""
    monkeypatch.setattr(kept_clients, "_kept", {})
    yield
    close_clients()


def test_a_cluster_has_one_client_until_it_is_closed(cluster: LocalCluster) -> None:
    first = client_for(cluster=cluster)
    assert first is not None and client_for(cluster=cluster) is first
    assert client_for(addresses=cluster.addresses) is not first
    first.close()
    second = client_for(cluster=cluster)
    assert second is not first and second is not None and not second.closed
    close_clients()
    assert second.closed


def test_the_environment_says_which_cluster_it_is(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARROW_SCHEDULER", cluster.addresses[0])
    client = client_for()
    assert client is not None and client_for(addresses=cluster.addresses[0]) is client


def test_a_client_that_is_given_is_used_as_it_is(client: Client) -> None:
    assert client_for(client) is client
    close_clients()
    assert not client.closed


def test_there_are_so_many_at_most(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_clients, "CLIENTS_MAX", 1)
    client_for(cluster=cluster)
    with pytest.raises(InvalidRequest, match=r"cluster: .*one of the 1 clusters .*close_clients\(\)"):
        client_for(addresses=cluster.addresses)


def test_two_ways_to_say_which_cluster(cluster: LocalCluster) -> None:
    with pytest.raises(InvalidRequest, match=r"addresses: .*None beside cluster"):
        client_for(cluster=cluster, addresses="127.0.0.1:1")


def test_a_task_has_its_own(client: Client) -> None:
    def has_its_own() -> bool:
        from sparrow_py import Client
        from sparrow_py.kept_clients import client_for

        return client_for(addresses="127.0.0.1:1") is Client.current()

    assert client.submit(has_its_own).result()


def test_a_task_of_a_cluster_in_this_process_has_none() -> None:
    def has_none() -> bool:
        return client_for(addresses="127.0.0.1:1") is None

    with LocalCluster(in_process=True, slots=1) as cluster, Client(cluster) as client:
        assert client.submit(has_none).result()
