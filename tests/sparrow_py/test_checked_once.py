"""A client checks each job once, whichever way it is submitted; the scheduler does so on its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparrow_py import AsyncClient, CallOptions, CallStage, Client, InvalidRequest, JobSpec, LocalCluster, Speculation
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S

BYTES = JobSpec([b"1"], app="many")


def test_by_a_client_for_threads(client: Client, checked: list[JobSpec]) -> None:
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
    assert len(checked) == 1
    assert client.submit_calls(tasks.square, [(3,)]).results(TIMEOUT_S) == [9]
    assert len(checked) == 2
    assert client.submit_stages([CallStage("stage", tasks.square, [(3,)])]).results(TIMEOUT_S) == [9]
    assert len(checked) == 3
    assert list(client.map(tasks.square, [3])) == [9]
    assert len(checked) == 4


async def test_by_a_client_for_asyncio(cluster: LocalCluster, checked: list[JobSpec]) -> None:
    async with AsyncClient(cluster) as client:
        assert await client.submit(tasks.square, 3) == 9
        assert len(checked) == 1


@pytest.mark.parametrize(
    "options", [CallOptions(probe_ratio=0.5), CallOptions(max_attempts=1, speculate=Speculation())]
)
def test_a_call_that_cannot_be_is_an_error_of_its_future(client: Client, options: CallOptions) -> None:
    future = client.with_options(**vars(options)).submit(tasks.square, 3)
    error = future.exception(TIMEOUT_S)
    assert isinstance(error, InvalidRequest) and error.field in ("probe_ratio", "max_attempts")


def test_a_job_that_cannot_be_is_an_error_at_once(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="probe_ratio"):
        client.submit_job(replace(BYTES, probe_ratio=0.5))
