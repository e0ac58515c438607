"""Programs over partitioned arrays on the inline plane: what they answer, and what stays between runs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow
from frontends.dataflow.calls import BLOCK_TASKS_MAX
from frontends.dataflow.stages import Loaded
from tests.support.dataflow_programs import (
    logistic,
    logistic_data,
    logistic_in_numpy,
    pagerank,
    pagerank_in_numpy,
    random_graph,
)


def inline(partitions: int = 4, **options: Any) -> Dataflow:
    return Dataflow(plane="inline", partitions=partitions, **options)


def test_logistic_regression_equals_numpy_bit_by_bit() -> None:
    features, labels = logistic_data()
    assert np.array_equal(
        logistic(None, features, labels, "inline", 0.5), logistic_in_numpy(features, labels, tolerance=0.5)
    )


def test_pagerank_equals_numpy() -> None:
    assert np.abs(pagerank(None, "inline") - pagerank_in_numpy(random_graph())).max() < 1e-12


def test_arrays_are_cut_by_rows_and_put_together_again() -> None:
    df = inline()
    rows, names = np.arange(22).reshape(11, 2), np.array(list("abcdefghijk"))
    X, N = df.partition((rows, names))
    returned = df.run(lambda: {"x": X, "pair": (N, 3)})
    assert np.array_equal(returned["x"], rows) and np.array_equal(returned["pair"][0], names)
    assert returned["pair"][1] == 3


def test_a_users_arrays_stay_as_they_are() -> None:
    df = inline()
    rows, start = np.arange(8.0), np.zeros(2)
    X, s, w = df.partition(rows), df.single(start), df.replicate(start)

    @df.stage(writes=[X])
    def double(x: Any) -> None:
        x *= 2

    @df.stage(writes=[s, w])
    def one(s: Any, w: Any) -> None:
        s += 1
        w += s

    def program() -> Any:
        double()
        one()
        return X, s, w

    doubled, ones, copies = df.run(program)
    assert doubled.tolist() == (rows * 2).tolist() and ones.tolist() == copies.tolist() == [1, 1]
    assert start.tolist() == [0, 0] and rows.tolist() == list(range(8))
    ones[:] = 9
    assert df.run(lambda: s).tolist() == [1, 1]  # What is returned is a copy.


def test_a_second_run_goes_on_with_the_data() -> None:
    df = inline()
    X = df.empty((2,))

    @df.stage(writes=[X])
    def step(x: Any, *, by: float = 1.0) -> None:
        x += by

    def program() -> Any:
        step()
        step(by=0.5)
        return X

    assert df.run(program).tolist() == [1.5] * 8
    assert df.run(program).tolist() == [3.0] * 8


def test_a_stage_that_is_defined_again_keeps_its_data_and_its_gathers() -> None:
    df = inline(partitions=2)
    X, total = df.partition(np.arange(4.0)), df.single(0.0)

    def send_by(factor: float) -> Any:
        @df.scatter(reads=[X], to=total)
        def send(x: Any) -> Any:
            yield 0, x.sum() * factor

        return send

    send = send_by(1)

    @df.gather(send, writes=[total])
    def collect(chunks: Any, total: Any) -> None:
        total[...] = sum(chunks)

    def program() -> Any:
        send()
        collect()
        return total

    assert df.run(program) == 6
    send = send_by(10)
    assert df.run(program) == 60
    assert len(df._definition.stages) == 2


def test_what_a_stage_captured_is_as_it_is_when_a_run_begins() -> None:
    df = inline()
    X = df.empty(1)
    factor, table = 2.0, [1.0]

    @df.stage(writes=[X])
    def step(x: Any) -> None:
        x[:] = factor * table[0]

    def program() -> Any:
        step()
        return X

    assert df.run(program).tolist() == [2] * 4
    before = df._definition.version
    assert df.run(program).tolist() == [2] * 4
    assert df._definition.version == before, "what tasks are bound to is made once if nothing has changed"
    factor, table[0] = 7.0, 5.0
    assert df.run(program).tolist() == [35] * 4


def test_a_list_of_shapes_gives_each_partition_its_own() -> None:
    df = inline(partitions=3)
    ragged = df.empty([1, 3, 2], fill=5)
    assert df.run(lambda: ragged).tolist() == [5] * 6
    squares = df.empty([(1, 1), (2, 2), (1, 3)])
    assert [part.shape for part in df.run(lambda: squares)] == [(1, 1), (2, 2), (1, 3)]
    flags = df.empty(2, fill=True)
    assert df.run(lambda: flags).dtype == bool


def test_objects_are_changed_in_place() -> None:
    df = inline()
    words = [["a"], ["b"], ["c"], ["d"]]
    held = df.objects(words)

    @df.stage(writes=[held])
    def add(held: list[str]) -> None:
        held.append("!")

    def program() -> Any:
        add()
        return held

    assert df.run(program) == [["a", "!"], ["b", "!"], ["c", "!"], ["d", "!"]]
    assert words == [["a"], ["b"], ["c"], ["d"]]


@pytest.mark.parametrize("kind", ["list", "dict", "tuple"])
def test_a_stage_that_reads_objects_sees_what_was_written_to_them_before_it(kind: str) -> None:
    """In the same block, in a later one and in a later run; all kinds of stages that read."""
    first: Any = {"list": [0, [0]], "dict": {0: 0, 1: [0]}, "tuple": (np.zeros(1), [0])}[kind]
    df = inline(partitions=1)
    held, seen = df.objects([first]), df.objects([[]])

    @df.stage(writes=[held])
    def grow(held: Any) -> None:
        held[1].append(len(held[1]))

    @df.stage(reads=[held], writes=[seen])
    def look(held: Any, seen: list[Any]) -> None:
        seen.append(len(held[1]))
        held[1].clear()  # Of a copy.

    @df.scatter(reads=[held], to=seen)
    def send(held: Any) -> Any:
        yield 0, len(held[1])

    @df.gather(send, reads=[held], writes=[seen])
    def take(chunks: list[Any], held: Any, seen: list[Any], *, more: int) -> None:
        seen.extend([*chunks, len(held[1]) + more])

    @df.signal(on=held)
    def is_long(held: Any) -> Any:
        return len(held[1]) >= 4

    def program() -> Any:
        while True:
            look()
            grow()
            send()
            take(more=10)
            if is_long():
                return seen

    assert df.run(program) == [[1, 2, 12, 2, 3, 13, 3, 4, 14]]
    assert df.run(program) == [[1, 2, 12, 2, 3, 13, 3, 4, 14, 4, 5, 15]]


def test_loaded_partitions_are_made_by_their_index_at_the_first_run() -> None:
    df = inline(partitions=3)
    asked = Asked()

    def read(index: int) -> Any:
        asked.indices.append(index)
        return np.full(index + 1, index)

    loaded = df.load(read)
    assert asked.indices == []
    assert df.run(lambda: loaded).tolist() == [0, 1, 1, 2, 2, 2]
    df.run(lambda: loaded)
    assert asked.indices == [0, 1, 2]


def test_loaded_partitions_share_nothing_with_each_other_or_with_what_the_function_captured() -> None:
    rows, same = np.arange(6.0), Asked()
    same.indices = rows  # type: ignore[assignment]  # Of other objects than arrays no copy is made.
    with inline(partitions=3) as df:
        views = df.load(lambda index: rows[index : index + 2])
        shared = df.load(lambda _: same.indices)

        @df.stage(writes=[views, shared])
        def add(views: Any, shared: Any) -> None:
            views += 1
            shared += 1

        def program() -> Any:
            add()
            return views, shared

        of_views, of_shared = df.run(program)
    assert of_views.tolist() == [1, 2, 2, 3, 3, 4]
    assert of_shared.tolist() == [*np.arange(1, 7)] * 3
    assert rows.tolist() == [*range(6)]


def test_what_a_load_captured_is_as_it_was_at_its_first_run() -> None:
    first = 1
    with inline(partitions=2) as df:
        loaded = df.load(lambda index: np.array([first + index]))
        first = 10
        assert df.run(lambda: loaded).tolist() == [10, 11]
        spec = df._definition.datasets[loaded._spec.id].source
        first = 20
        assert isinstance(spec, Loaded) and spec.function(0).tolist() == [10]


def test_a_loaded_file_that_is_mapped_can_be_written(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(6.0))
    with inline(partitions=2) as df:
        rows = df.load(lambda index: np.load(tmp_path / "rows.npy", mmap_mode="r")[3 * index : 3 * index + 3])

        @df.stage(writes=[rows])
        def add(rows: Any) -> None:
            assert type(rows) is np.ndarray
            rows += 1

        def program() -> Any:
            add()
            return rows

        assert df.run(program).tolist() == [1, 2, 3, 4, 5, 6]


class Asked:
    def __init__(self) -> None:
        self.indices: list[int] = []


def test_chunks_come_in_the_order_of_sources_and_of_yields_without_empty_ones() -> None:
    df = inline(partitions=3)
    index, seen = df.partition(np.arange(3)), df.objects([[], [], []])

    @df.scatter(reads=[index], to=seen)
    def send(i: Any) -> Any:
        yield 2, np.array([int(i[0]), 0])
        yield 0, np.array([])
        yield 1, None
        yield 2, (int(i[0]), "second")

    @df.gather(send, writes=[seen])
    def collect(chunks: Any, seen: Any) -> None:
        seen.extend(chunk.tolist() if isinstance(chunk, np.ndarray) else chunk for chunk in chunks)

    def program() -> Any:
        send()
        collect()
        return seen

    expected = [[0, 0], (0, "second"), [1, 0], (1, "second"), [2, 0], (2, "second")]
    assert df.run(program) == [[], [], expected]


def test_a_chunk_is_what_it_was_when_it_was_yielded() -> None:
    df = inline(partitions=2)
    X, total = df.partition(np.arange(2.0)), df.single(np.zeros(1))

    @df.scatter(reads=[X], to=total)
    def send(x: Any) -> Any:
        buffer = np.zeros(1)
        for _ in range(3):
            buffer += 1
            yield 0, buffer

    @df.gather(send, writes=[total])
    def collect(chunks: Any, total: Any) -> None:
        total[:] = sum(chunks)

    def program() -> Any:
        send()
        collect()
        return total

    assert df.run(program).tolist() == [12.0]


@pytest.mark.parametrize("kind", ["single", "replicate"])
def test_a_reduce_folds_from_the_first_partition_to_the_last(kind: str) -> None:
    df = inline(partitions=5)
    X = df.partition(np.array([1e16, 1.0, -1e16, 1.0, 3.0]))
    into = df.single(np.zeros(1)) if kind == "single" else df.replicate(np.zeros(1))
    add = df.reduce(X, into=into)
    largest = df.single(np.zeros(1))
    most = df.reduce(X, into=largest, op=max)

    def program() -> Any:
        add()
        most()
        return into, largest

    assert [value.tolist() for value in df.run(program)] == [[((1e16 + 1) - 1e16) + 1 + 3], [1e16]]


def test_barriers_and_signals_answer() -> None:
    df = inline()
    count = df.single(0)

    @df.stage(writes=[count])
    def step(count: Any) -> None:
        count += 1

    @df.signal(on=count)
    def below(count: Any, *, most: int) -> Any:
        return count < most

    def program() -> Any:
        while below(most=5):
            step()
            assert df.barrier() is None
        return count

    assert df.run(program) == 5


def test_long_programs_without_signals_are_cut_into_blocks_that_equal_one() -> None:
    df = inline(partitions=40)
    X, total = df.empty((1,), fill=1.0), df.single(np.zeros(1))

    @df.stage(writes=[X])
    def step(x: Any) -> None:
        x += 1

    add = df.reduce(X, into=total)
    rounds = BLOCK_TASKS_MAX // 60

    def program() -> Any:
        for _ in range(rounds):
            step()
            add()
        return total

    assert df.run(program).tolist() == [40 * (rounds + 1)]
    assert df._runner.tasks_run == rounds * 81 > BLOCK_TASKS_MAX
    assert df._runner._bound.misses > 1


def test_the_default_number_of_partitions_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    df = Dataflow(plane="inline", workers=3, partitions_per_worker=5)
    assert df.partitions == 15
    assert capsys.readouterr().err == "dataflow: 15 partitions (3 × 5 a worker)\n"


def test_a_parameter_that_a_call_leaves_out_has_its_default_whatever_came_before() -> None:
    with Dataflow(partitions=1, progress=False) as df:
        total = df.single(0.0)

        @df.stage(writes=[total])
        def add(total: Any, *, rate: float = 1.0) -> None:
            total += rate

        def program() -> Any:
            add(rate=10.0)
            df.barrier()
            add()
            return total

        assert df.run(program) == 11.0


def test_parameters_that_a_partial_function_has_stay() -> None:
    def add(by: float, x: Any, *, times: float, rate: float = 1.0) -> None:
        x += by * times * rate

    with inline(partitions=2) as df:
        x = df.partition(np.zeros(2))
        stage = df.stage(writes=[x], name="stage")(functools.partial(add, 2.0, times=3.0))

        def program() -> Any:
            stage()
            stage(rate=2.0)
            stage(times=10.0)
            return x

        assert df.run(program).tolist() == [38.0, 38.0]
        assert df.run(program).tolist() == [76.0, 76.0]


def test_whole_numbers_may_be_numpys() -> None:
    df = Dataflow(workers=np.int64(3), min_workers=np.int32(2), partitions_per_worker=np.uint8(2), progress=False)  # type: ignore[arg-type]
    assert (df.workers, df.partitions) == (3, 6) and type(df.workers) is int
    assert df.partition(np.arange(4), partitions=np.int64(2)).partitions == 2  # type: ignore[arg-type]


def test_lambdas_and_objects_are_stages_of_their_own() -> None:
    class Add:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: Any) -> None:
            x += self.by

    with inline(partitions=2) as df:
        x = df.partition(np.zeros(2))
        total = df.single(np.zeros(1))
        stages = [df.stage(writes=[x])(function) for function in (Add(1), Add(2), lambda x: x.fill(10))]
        assert [stage.name for stage in stages] == ["Add-0", "Add-1", "<lambda>-2"]
        more = df.signal(on=total)(lambda total: total[0] > 0)

        def program() -> Any:
            stages[0]()
            stages[1]()
            more()
            return x

        assert df.run(program).tolist() == [3, 3]
