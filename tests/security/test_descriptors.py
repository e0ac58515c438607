"""What a worker has open: what it has of its node monitor's, its tasks have."""

import pytest

from sparrow_py import Client, LocalCluster
from tests.support import tasks

pytestmark = pytest.mark.real_starts


def test_a_worker_has_its_streams_its_connection_and_what_its_output_takes(client: Client) -> None:
    """Not its fork server's connection, by which a task could have the node monitor kill any process."""
    found = client.submit(tasks.open_descriptors).result()
    assert [found.pop(number) for number in range(3)] == ["/dev/null", "pipe", "pipe"]
    assert sorted(found.values()) == ["/memfd:sparrow-output (deleted)", "socket", "socket"]


def test_one_whose_output_is_not_forwarded_has_its_connection_alone() -> None:
    with LocalCluster(slots=1, forward_output=False) as cluster, Client(cluster) as client:
        found = client.submit(tasks.open_descriptors).result()
    assert found.pop(0) == "/dev/null"
    assert [found.pop(1), found.pop(2)] == ["pipe", "pipe"]
    assert list(found.values()) == ["socket"]
