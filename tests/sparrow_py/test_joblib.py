"""joblib's backend `sparrow`: what joblib promises of backends, and how large arrays travel."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparrow_py import BlobRef, CallOptions, Client, InvalidRequest, LocalCluster, NoScheduler, stored_values
from sparrow_py.stored_values import StoredValue
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S, wait_until

joblib = pytest.importorskip("joblib")

from joblib import Parallel, delayed, parallel_config  # noqa: E402

from sparrow_py.joblib import SparrowBackend, backend, large_arguments  # noqa: E402
from sparrow_py.joblib.batches import Batches  # noqa: E402
from sparrow_py.joblib.large_arguments import LargeArguments, run_batch  # noqa: E402

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Of a cluster whose tasks run here: what a worker would import, this process has."""
    with LocalCluster(in_process=True, slots=2) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def sparrow(client: Client) -> Iterator[None]:
    """joblib uses the cluster."""
    with parallel_config(backend="sparrow", client=client):
        yield


@pytest.fixture
def stored(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is put into the cluster."""
    values: list[Any] = []
    put = client.put
    monkeypatch.setattr(client, "put", lambda value: (values.append(value), put(value))[1])
    return values


def fails(number: int) -> int:
    raise ZeroDivisionError(f"of {number}")


# ---- what joblib promises --------------------------------------------------------------------


@pytest.mark.usefixtures("sparrow")
def test_results_are_in_order_and_lambdas_travel() -> None:
    offset = 3
    assert Parallel()(delayed(lambda number: number + offset)(number) for number in range(100)) == [*range(3, 103)]
    assert Parallel()(delayed(divmod)(number, b) for number, b in [(7, 2)]) == [(3, 1)]
    assert Parallel()([]) == []


@pytest.mark.usefixtures("sparrow")
@pytest.mark.parametrize("return_as", ["generator", "generator_unordered"])
def test_results_as_they_come(return_as: str) -> None:
    results = Parallel(return_as=return_as, batch_size=3)(delayed(abs)(-number) for number in range(20))
    assert next(results) in range(20)
    assert len(list(results)) == 19


@pytest.mark.usefixtures("sparrow")
def test_an_exception_is_the_calls_own_and_the_next_call_works() -> None:
    with pytest.raises(ZeroDivisionError, match="of 2") as caught:
        Parallel(batch_size=1)(delayed(fails if number == 2 else abs)(number) for number in range(50))
    assert "in fails" in str(caught.value.__cause__)
    assert Parallel()(delayed(abs)(number) for number in range(3)) == [0, 1, 2]


@pytest.mark.usefixtures("sparrow")
def test_an_error_of_the_iterable_is_raised() -> None:
    def calls() -> Iterator[Any]:
        for number in range(20):
            yield delayed(abs)(number)
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        Parallel(pre_dispatch=4, batch_size=1)(calls())


@pytest.mark.usefixtures("sparrow")
def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match="pickle") as caught:
        Parallel()(delayed(len)([threading.Lock()]) for _ in range(2))
    assert any("calls[0][1][0][0]" in note for note in caught.value.__notes__)


@pytest.mark.usefixtures("sparrow")
def test_a_parallel_that_is_used_several_times() -> None:
    with Parallel() as parallel:
        assert parallel(delayed(abs)(-number) for number in range(3)) == [0, 1, 2]
        assert parallel(delayed(abs)(-number) for number in range(2)) == [0, 1]


def test_batches_grow_where_calls_are_short(client: Client) -> None:
    made = SparrowBackend(client)
    made.parallel = SimpleNamespace(verbose=0)
    sizes = [made.compute_batch_size()]
    for _ in range(3):
        made.batch_completed(sizes[-1], 0.001)
        sizes.append(made.compute_batch_size())
    assert sizes == [1, 2, 4, 8]
    made.terminate()
    assert made.compute_batch_size() == 1


@pytest.mark.usefixtures("sparrow")
def test_calls_under_one_backend_do_not_end_each_other() -> None:
    first = Parallel(return_as="generator", batch_size=1)(delayed(abs)(-number) for number in range(9))
    assert next(first) == 0
    with pytest.raises(ZeroDivisionError):
        Parallel(batch_size=1)(delayed(fails)(number) for number in range(9))
    assert Parallel()(delayed(abs)(-number) for number in range(3)) == [0, 1, 2]
    assert list(first) == [*range(1, 9)]


@pytest.mark.usefixtures("sparrow")
def test_a_call_that_is_given_up_is_stopped(client: Client, gate: Path) -> None:
    results = Parallel(return_as="generator", batch_size=1)(delayed(tasks.hold)(gate) for _ in range(9))
    with pytest.warns(UserWarning, match="cancelled"):
        results.close()
    gate.touch()  # Threads cannot be ended; what had not started never does.
    wait_until(lambda: not client.unfinished(), "nothing of the call is left")


@pytest.mark.usefixtures("sparrow")
def test_calls_in_a_call_run_in_threads_and_deeper_ones_one_by_one() -> None:
    def inner(depth: int) -> list[str]:
        kinds = Parallel(n_jobs=2)(delayed(inner)(depth - 1) for _ in range(2)) if depth else [[]]
        return [type(joblib.parallel.get_active_backend()[0]).__name__, *kinds[0]]

    assert Parallel()(delayed(inner)(1) for _ in range(2)) == [["ThreadingBackend", "SequentialBackend"]] * 2


def test_a_task_that_names_the_backend_runs_the_calls_itself(client: Client) -> None:
    def nested() -> list[int]:
        import sparrow_py.joblib  # noqa: F401

        with parallel_config(backend="sparrow", addresses="127.0.0.1:1"):
            return list(Parallel(n_jobs=4)(delayed(abs)(-number) for number in range(3)))

    assert client.submit(nested).result(TIMEOUT_S) == [0, 1, 2]


# ---- how many --------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_jobs", "effective"), [(None, 2), (-1, 2), (-2, 1), (-9, 1), (1, 1), (2, 2), (7, 7)])
def test_how_many_run_at_a_time(client: Client, n_jobs: int | None, effective: int) -> None:
    assert SparrowBackend(client).effective_n_jobs(n_jobs) == effective
    with parallel_config(backend="sparrow", client=client):
        assert Parallel(n_jobs=n_jobs)(delayed(abs)(-number) for number in range(3)) == [0, 1, 2]


def test_none_is_no_number(client: Client) -> None:
    with pytest.raises(ValueError, match="n_jobs == 0"):
        SparrowBackend(client).effective_n_jobs(0)


def test_a_cluster_without_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "SLOTS_TIMEOUT_S", 0.01)
    with LocalCluster(in_process=True, slots=1) as cluster, Client(cluster) as client:
        monkeypatch.setattr(client, "nodes", list)
        with pytest.raises(NoScheduler, match=r"backend sparrow of joblib: the cluster has no slot .* no node runs"):
            SparrowBackend(client).effective_n_jobs(-1)


def test_no_more_are_sent_than_may_be_in_flight() -> None:
    from concurrent.futures import Future

    futures: list[Future[Any]] = []
    told: list[int] = []
    all_told = threading.Event()

    def send(batch: int) -> Future[Any]:
        futures.append(Future())
        return futures[-1]

    def callback(future: Future[Any]) -> None:
        told.append(future.result())
        if len(told) == 5:
            all_told.set()

    batches = Batches(send, lambda _: False, 2)
    for number in range(5):
        batches.submit(number, callback)
    assert len(futures) == 2
    for number in range(5):
        while len(futures) <= number:  # The thread that tells of the one before sends this one.
            assert not all_told.wait(0.001)
        futures[number].set_result(number)
    assert all_told.wait(TIMEOUT_S)
    batches.close()
    assert told == [0, 1, 2, 3, 4]


def test_parameters_of_the_backend(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="options: 1 is not valid; allowed: CallOptions"):
        SparrowBackend(options=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"cluster: .*parallel_config"):
        Parallel(n_jobs=2, backend="sparrow", cluster=client)([])
    with parallel_config(backend="sparrow", client=client, options=CallOptions(capture_output=True)):
        assert Parallel()(delayed(abs)(-number) for number in range(3)) == [0, 1, 2]


# ---- large arrays ----------------------------------------------------------------------------


class Batch:
    """A batch as joblib makes them, as far as is needed."""

    def __init__(self, *arguments: Any) -> None:
        self.items = [(operator.itemgetter(0), arguments, {})]

    def __call__(self) -> list[Any]:
        return [arguments for _, arguments, _ in self.items]


def kept(value: Any) -> StoredValue:
    """What `put` gives."""
    content = stored_values.encode(value)
    return StoredValue(BlobRef("0" * 64, len(content), ()), content, None)


def test_an_array_is_stored_once() -> None:
    stored: list[Any] = []
    large = LargeArguments(1 << 20, put=lambda value: (stored.append(value), kept(value))[1])
    shared, own = np.ones(1 << 18), np.ones(1 << 16)
    encoded = [large.encode(Batch(shared, own.copy(), {"deep": [shared]}, number)) for number in range(4)]
    assert [arrays == encoded[0][1] and len(arrays) == 1 for _, arrays in encoded] == [True] * 4
    assert len(stored) == 1 and stored[0] is shared
    assert all(len(pickled) < shared.nbytes for pickled, _ in encoded)
    again = run_batch(encoded[2][0], [shared])[0]
    assert again[0] is again[2]["deep"][0] is shared and again[3] == 2


def test_arrays_that_may_be_written_to_are_copies() -> None:
    large, shared = LargeArguments(8, put=kept), np.ones(9)
    pickled, _ = large.encode(Batch(shared, shared))
    ((one, other),) = run_batch(pickled, [shared], read_only=False)
    assert one is other and one is not shared and one.flags.writeable


def test_small_arrays_no_limit_and_arrays_of_objects_travel_with_their_batches() -> None:
    array = np.ones(1 << 17)
    for bytes_min, given in ((None, array), (array.nbytes + 1, array), (8, np.array([None] * 9))):
        large = LargeArguments(bytes_min, put=kept)
        assert [large.encode(Batch(given))[1] for _ in range(3)] == [[]] * 3


def test_an_array_in_the_place_of_one_that_is_gone_is_another() -> None:
    stored: list[float] = []
    large = LargeArguments(8, put=lambda value: (stored.append(value[0]), kept(value))[1])
    for number in range(50):
        large.encode(Batch(np.full(4, number)))
    assert stored == list(range(50)) and len(large._stored) <= 1


def test_so_many_arrays_are_known_again_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_arguments, "ARRAYS_MAX", 1)
    stored: list[float] = []
    large = LargeArguments(8, put=lambda value: (stored.append(value[0]), kept(value))[1])
    arrays = [np.full(4, number) for number in range(2)]
    for array in (arrays[0], arrays[0], arrays[1], arrays[0]):
        large.encode(Batch(array))
    assert stored == [0, 1, 0] and len(large._stored) == 1


@pytest.mark.usefixtures("sparrow")
def test_calls_that_share_an_array_get_it_read_only(stored: list[Any]) -> None:
    array = np.arange(200_000.0)
    sums = Parallel(batch_size=1, max_nbytes="1K")(
        delayed(lambda a, n: (a[n], a.flags.writeable))(array, n) for n in range(6)
    )
    assert sums == [(number, False) for number in range(6)]
    assert len(stored) == 1 and stored[0] is array and array.flags.writeable


# ---- scikit-learn ----------------------------------------------------------------------------


@pytest.mark.rest
@pytest.mark.usefixtures("sparrow")
def test_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, cross_val_score

    data, labels = make_classification(200, 8, random_state=0)

    def results(n_jobs: int) -> tuple[Any, ...]:
        search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=3, n_jobs=n_jobs).fit(data, labels)
        forest = RandomForestClassifier(10, random_state=0, n_jobs=n_jobs).fit(data, labels)
        scores = cross_val_score(LogisticRegression(), data, labels, cv=3, n_jobs=n_jobs)
        return (
            search.best_params_,
            search.cv_results_["mean_test_score"].tolist(),
            forest.predict(data).tolist(),
            scores.tolist(),
        )

    assert results(-1) == results(1)


@pytest.mark.rest
def test_workers_of_their_own(cluster: LocalCluster) -> None:
    array = np.arange(300_000.0)
    with Client(cluster) as client, parallel_config(backend="sparrow", client=client):
        assert Parallel(batch_size=1)(delayed(np.sum)(array) for _ in range(8)) == [array.sum()] * 8
