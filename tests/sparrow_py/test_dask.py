"""Dask's collections computed by `sparrow_py.dask.get`: what they give is what Dask's own threads give."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import pytest

from sparrow_py import Client, InvalidRequest, LocalCluster
from sparrow_py.job import JobSpec

dask = pytest.importorskip("dask")

import dask.bag as db  # noqa: E402
from dask.callbacks import Callback  # noqa: E402

from sparrow_py.dask import get, planning  # noqa: E402

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Of a cluster whose tasks run here: what a worker would import, this process has."""
    with LocalCluster(in_process=True, slots=2) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def submitted(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[JobSpec]:
    """The jobs that are submitted."""
    jobs: list[JobSpec] = []
    submit_job = client.submit_job
    monkeypatch.setattr(client, "submit_job", lambda spec, **how: (jobs.append(spec), submit_job(spec, **how))[1])
    return jobs


def computed(client: Client, *collections: Any) -> tuple[Any, ...]:
    """By us."""
    return tuple(dask.compute(*collections, scheduler=lambda *args, **how: get(*args, client=client, **how)))


def tree(leaves: int) -> Any:
    """A sum of numbers, two at a time."""
    add = dask.delayed(lambda *numbers: sum(numbers))
    level = [add(number) for number in range(leaves)]
    while len(level) > 1:
        level = [add(*level[first : first + 2]) for first in range(0, len(level), 2)]
    return level[0]


def test_delayed_and_bags(client: Client) -> None:
    bag = db.range(100, npartitions=4).map(lambda number: number % 7).frequencies(sort=True)
    with_value = dask.delayed(operator.add)(dask.delayed([1]), [2])
    expected = dask.compute(tree(16), bag, with_value, {"k": tree(2)}, scheduler="threads")
    assert computed(client, tree(16), bag, with_value, {"k": tree(2)}) == expected


def test_arrays(client: Client) -> None:
    import dask.array as da
    import numpy as np

    numbers = da.from_array(np.arange(6400.0).reshape(80, 80), chunks=(40, 40))
    collections = [((numbers - numbers.mean(axis=0)) ** 2).sum(axis=1), numbers.T @ numbers, numbers[::3, 1]]
    for ours, theirs in zip(
        computed(client, *collections), dask.compute(*collections, scheduler="threads"), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.rest
def test_data_frames(client: Client) -> None:
    import dask.dataframe as dd
    import pandas as pd

    rows = pd.DataFrame({"key": [number % 5 for number in range(100)], "value": range(100)})
    frame = dd.from_pandas(rows, npartitions=4)
    merged = frame.merge(frame, on="key").groupby("value_x").value_y.sum()
    collections = [frame.groupby("key").value.mean(), merged, frame[frame.value > 90], frame.value.sum()]
    for ours, theirs in zip(
        computed(client, *collections), dask.compute(*collections, scheduler="threads"), strict=True
    ):
        if isinstance(theirs, pd.DataFrame):
            pd.testing.assert_frame_equal(ours, theirs)
        else:
            pd.testing.assert_series_equal(pd.Series(ours).sort_index(), pd.Series(theirs).sort_index())


def test_a_graph_by_hand_with_nested_keys(client: Client) -> None:
    graph = {"x": 1, "y": (operator.add, "x", 10), ("z", 0): (sum, ["x", "y"]), "alias": "y", "list": ["x", "y"]}
    keys = ["alias", [("z", 0), "x"], ["list"]]
    assert get(graph, keys, client=client) == (11, (12, 1), ([1, 11],)) == dask.get(graph, keys)
    assert get(graph, "y", client=client) == 11
    assert get(graph, [], client=client) == ()


def test_a_large_value_that_is_wanted_and_needed(client: Client) -> None:
    graph = {"large": (bytes, 100_000), "size": (len, "large"), "end": (operator.getitem, "large", -1)}
    assert get(graph, ["large", "size", "end"], client=client) == (bytes(100_000), 100_000, 0)


def test_one_job_of_stages_has_the_whole_graph(client: Client, submitted: list[JobSpec]) -> None:
    assert computed(client, tree(8)) == (28,)
    [job] = submitted
    assert [len(stage.tasks) for stage in job.stages] == [2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    assert job.name == "dask" and job.stages[0].name == "lambda 0"


def test_a_graph_that_is_too_deep_for_a_job(
    client: Client, submitted: list[JobSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "STAGES_MAX", 2)
    monkeypatch.setattr(planning, "LEVELS_MAX", 2)
    assert computed(client, tree(16)) == (120,)
    assert [len(job.stages) for job in submitted] == [2, 2, 1]


# ---- errors ----------------------------------------------------------------------------------


def fails(number: int) -> int:
    raise ZeroDivisionError(f"of {number}")


def test_an_exception_is_the_tasks_own_and_names_its_key(client: Client) -> None:
    graph = {"a": (fails, 7), "b": (operator.add, "a", "c"), "c": (abs, -1), "d": (abs, "b"), "e": (abs, "b")}
    with pytest.raises(ZeroDivisionError, match="of 7") as caught:
        get(graph, ["d", "e"], client=client)
    assert caught.value.__notes__ == ["raised by the Dask task 'a'"]
    assert "in fails" in str(caught.value.__cause__)


def test_a_failed_chain_names_all_its_keys(client: Client) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        get({"a": (abs, -7), "b": (fails, "a")}, "b", client=client)
    assert caught.value.__notes__ == ["raised by the Dask task 'a', then 'b'"]


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        ({"client": 1}, "client: 1 is not valid; allowed: a Client"),
        ({"addresses": "127.0.0.1:1"}, "addresses: '127.0.0.1:1' is not valid; allowed: None beside client"),
        ({"options": 1}, "options: 1 is not valid; allowed: CallOptions"),
    ],
)
def test_parameters_that_cannot_be(client: Client, ways: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        get({"x": (abs, -1)}, "x", **{"client": client, **ways})


def test_what_cannot_be_pickled_is_an_error_at_once(client: Client) -> None:
    with pytest.raises(TypeError, match=r"args\[0\] is a Client, which works in this process alone"):
        get({"x": (id, client)}, "x", client=client)


# ---- what else users of Dask have ------------------------------------------------------------


def test_callbacks_are_told(client: Client) -> None:
    told: list[tuple[Any, ...]] = []

    class Telling(Callback):  # type: ignore[misc]
        def _start(self, dsk: Any) -> None:
            told.append(("start", set(dsk)))

        def _posttask(self, key: Any, value: Any, dsk: Any, state: Any, node: Any) -> None:
            told.append((key, value, len(state["finished"]), node))

        def _finish(self, dsk: Any, state: Any, errored: bool) -> None:
            told.append(("finish", errored))

    with Telling():
        assert get({"a": (abs, -1), "b": (abs, -2), "c": (max, "a", "b")}, "c", client=client) == 2
        with pytest.raises(ZeroDivisionError):
            get({"x": (fails, 1)}, "x", client=client)
    assert told[0] == ("start", {"a", "b", "c"}) and told[3] == ("c", None, 3, told[1][3])
    assert told[4] == ("finish", False) and told[-1] == ("finish", True)


def test_in_a_task_the_task_computes_the_graph_itself(client: Client) -> None:
    def nested() -> Any:
        from sparrow_py.dask import get

        return get({"a": (abs, -1), "b": (abs, "a")}, "b")

    assert client.submit(nested).result() == 1


@pytest.mark.rest
def test_workers_of_their_own(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        assert computed(client, tree(32), db.range(50, npartitions=3).sum()) == (496, 1225)
