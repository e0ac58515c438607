"""`benchmarks.graphs`: what its graphs are, and what becomes of the figures; the systems are played by plain calls."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.graphs import __main__ as graphs
from benchmarks.graphs import functions, moved, nested, systems
from benchmarks.graphs.nested import recursion
from benchmarks.graphs.systems import POOL, System
from benchmarks.graphs.work import (
    ARRAY_WORKERS,
    INPUTS_MAX,
    ArrayToWorkers,
    Size,
    Work,
    fan,
    random_graph,
    random_inputs,
    tree,
)
from benchmarks.habits.turns import OURS


def at_once(name: str) -> System:
    """Each call runs when it is submitted."""
    return System(name, lambda function, *arguments: function(*arguments), list, lambda value: value)


@given(st.integers(0, 50), st.integers())
def test_inputs_are_earlier_tasks(tasks: int, seed: int) -> None:
    inputs = random_inputs(tasks, seed)
    assert len(inputs) == tasks
    for task, others in enumerate(inputs):
        assert len(set(others)) == len(others) <= INPUTS_MAX
        assert all(0 <= other < task for other in others)


def test_inputs_are_the_same_in_each_run_and_of_each_number() -> None:
    assert random_inputs(1_000) == random_inputs(1_000)
    assert {len(others) for others in random_inputs(1_000)} == set(range(INPUTS_MAX + 1))


def test_graphs_have_the_values_of_sums() -> None:
    assert random_graph([(), (0,), (0, 1)]).run(at_once(OURS)) == 0 + 1 + (2 + 0 + 1)
    assert tree(8).run(at_once(OURS)) == sum(range(8))
    assert fan(10).run(at_once(OURS)) == sum(1 + number for number in range(10))
    assert functions.add(functions.MODULUS, 5) == 5


@pytest.mark.parametrize("work", [random_graph(random_inputs(50)), tree(16), fan(10)], ids=lambda work: work.name)
def test_graphs_have_as_many_tasks_as_they_say(work: Work) -> None:
    submitted: list[object] = []

    def submit(function: type, *arguments: object) -> object:
        submitted.append(function)
        return function(*arguments)

    work.run(System(OURS, submit, list, lambda value: value))
    assert len(submitted) == work.tasks


class Putting:
    """A client whose calls run at once, and whose values are themselves."""

    def submit(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    def submit_calls(self, function: Any, arguments: Any) -> Any:
        return SimpleNamespace(futures=[function(*one) for one in arguments])


def test_tasks_that_read_values_read_them_in_turn_and_what_moved_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved, "HOLD_S", 0.0)
    values: Any = [[number] for number in range(moved.VALUES)]
    client: Any = Putting()
    for submit in moved.WAYS.values():
        assert submit(client, values) == [task % moved.VALUES for task in range(moved.TASKS)]
    copies = iter([8.0, 9.0, 10.0, 1.0])
    monkeypatch.setattr(moved, "one_round", lambda submit: {"copies fetched": next(copies), "seconds": 2.0})
    report = moved.measure_moved(2)
    (rows,) = report.tables.values()
    assert report.value == 9.0
    assert [(row["least"], row["most"], row["MB moved"]) for row in rows] == [(8.0, 10.0, 72.0), (1.0, 9.0, 40.0)]


def test_peers_that_are_not_installed_are_left_out_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert [line.partition(":")[0] for line in systems.missing()] == [
        "distributed is left out, as it is not installed",
        "ray is left out, as it is not installed",
    ]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, one peer and the pool run calls at once."""

    @contextlib.contextmanager
    def all_systems(workers: int, *, peers: bool = True) -> Iterator[dict[str, System]]:
        yield {name: at_once(name) for name in (OURS, "peer")}

    @contextlib.contextmanager
    def pool(workers: int) -> Iterator[System]:
        yield at_once(POOL)

    monkeypatch.setattr(graphs, "systems", all_systems)
    monkeypatch.setattr(graphs, "pool", pool)
    monkeypatch.setattr(graphs, "IDLE_S", 0.0)
    monkeypatch.setattr("benchmarks.graphs.work.HOLD_S", 0.0)


@pytest.mark.usefixtures("played")
def test_the_report_has_all_work_of_all_systems() -> None:
    report = graphs.measure(2, Size(random_tasks=20, leaves=4, width=3, round_trips=2, array_bytes=800, fib=5))
    assert [(title, len(rows)) for title, rows in report.tables.items()] == [
        ("2 round trips: 2 tasks", 3),
        ("random graph of 20: 20 tasks", 2),
        ("tree of 4 leaves: 7 tasks", 2),
        ("fan-out and fan-in of 3: 5 tasks", 2),
        (f"0 MB to {ARRAY_WORKERS} workers: {ARRAY_WORKERS} tasks", 2),
    ]
    ours = report.tables["random graph of 20: 20 tasks"][0]
    assert (ours["system"], ours["ours / this"]) == (OURS, 1.0)
    assert report.value == ours["wall ms per task"] == ours["wall ms"] / 20
    of_pool = report.tables["2 round trips: 2 tasks"][-1]
    assert (of_pool["system"], of_pool["wall / pool's trip"]) == (POOL, 1.0)
    assert not any("fib" in note for note in report.notes)  # Nobody here has tasks that submit tasks.
    assert "peer: in one turn the array went to 1 worker only." in report.notes  # All is run by this process.
    assert len(report.repetitions) == len(report.tables)


@pytest.mark.usefixtures("played")
def test_an_array_is_summed_once_whole() -> None:
    array = ArrayToWorkers(8_000)
    assert array.work.run(at_once(OURS)) == array.array.sum()
    assert array.fewest_workers == {OURS: 1}


def test_a_recursion_is_run_by_those_who_can(monkeypatch: pytest.MonkeyPatch) -> None:
    import sparrow_py

    current = SimpleNamespace(current=lambda: SimpleNamespace(submit=at_once_submit))
    monkeypatch.setattr(sparrow_py, "Client", current)
    work = recursion(6)
    assert (work.name, work.tasks) == ("fib(6)", 25)
    assert work.run(replace(at_once(OURS), fib=functions.fib)) == 8


def at_once_submit(function: Any, *arguments: Any) -> Any:
    return SimpleNamespace(result=lambda: function(*arguments))


def test_memory_of_processes_below_this_one() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            before, most = nested.memory_of(lambda: None)
        finally:
            child.kill()
    assert most.processes >= before.processes >= 1
    assert before.private_mb > 0
