"""Which tasks of a graph make a stage (`sparrow_py.dask.planning`), and what of a Dask graph is to be run."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrow_py import InvalidRequest

dask = pytest.importorskip("dask")

from dask._task_spec import Alias  # noqa: E402

from sparrow_py.dask import planning  # noqa: E402
from sparrow_py.dask.graphs import SHARED_BYTES_MIN, prepared  # noqa: E402
from sparrow_py.dask.planning import planned_stages  # noqa: E402

Graph = dict[int, set[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Tasks that need some of those before them."""
    count = draw(st.integers(0, 12))
    return {key: draw(st.sets(st.integers(0, key - 1), max_size=3)) if key else set() for key in range(count)}


def check_stages(graph: Graph, stages: list[list[int]]) -> None:
    """Each task is in one stage, and after all that it needs."""
    stage_of = {key: number for number, stage in enumerate(stages) for key in stage}
    assert sum(map(len, stages)) == len(stage_of)
    for key, number in stage_of.items():
        assert all(stage_of[other] < number for other in graph[key])


@given(graphs())
@example({0: set(), 1: set(), 2: {0, 1}, 3: {2}, 4: {2}})
def test_all_tasks_are_in_stages_and_wait_for_nothing_else(graph: Graph) -> None:
    stages = planned_stages(graph)
    check_stages(graph, stages)
    assert {key for stage in stages for key in stage} == graph.keys()
    for stage in stages:
        assert all(graph[key] == graph[stage[0]] for key in stage)  # So all of a stage may begin at once.


@given(graphs())
def test_levels_where_stages_would_be_too_many(graph: Graph) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "STAGES_MAX", 0)
        patch.setattr(planning, "LEVELS_MAX", 3)
        stages = planned_stages(graph)
    check_stages(graph, stages)
    assert len(stages) <= 3
    assert not graph or stages[0] == [key for key in stages[0] if not graph[key]]
    planned = {key for stage in stages for key in stage}
    assert all(graph[key] <= planned for key in planned)  # What is left can be run later.


def test_twins_share_a_stage_and_others_do_not() -> None:
    tree: dict[str, set[str]] = {
        "a": set(),
        "b": set(),
        "c": set(),
        "d": set(),
        "ab": {"a", "b"},
        "cd": {"c", "d"},
        "all": {"ab", "cd"},
    }
    assert planned_stages(tree) == [["a", "b"], ["c", "d"], ["ab"], ["cd"], ["all"]]
    fan: dict[str, set[str]] = {"in": set(), "a": {"in"}, "b": {"in"}, "c": {"in"}, "out": {"a", "b", "c"}}
    assert [sorted(stage) for stage in planned_stages(fan)] == [["in"], ["a", "b", "c"], ["out"]]


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ({"a": {"b"}, "b": {"a"}}, "the Dask graph: .*'[ab]' needs '[ab]'"),
        ({"a": {"gone"}}, "what the Dask task 'a' needs: 'gone' is not valid; allowed: keys of the graph"),
    ],
)
def test_graphs_that_cannot_be(graph: dict[str, set[str]], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        planned_stages(graph)


def test_a_task_that_needs_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "INPUTS_MAX", 2)
    with pytest.raises(InvalidRequest, match=r"results that the Dask task 'sum' needs: 3 .*at most 2: combine them"):
        planned_stages({"a": set(), "b": set(), "c": set(), "sum": {"a", "b", "c"}})


# ---- what is run -----------------------------------------------------------------------------


def test_chains_are_one_task_and_values_are_none() -> None:
    graph = prepared({"x": 1, "y": (abs, "x"), "z": (abs, "y"), "w": (max, "z", "v"), "v": 5, "other": (abs, 1)}, {"w"})
    assert len(graph.nodes) == 2  # x, y and z; and w. Nobody asks for `other`.
    assert graph.known == {"v": 5}


def test_keys_that_stand_for_others_are_followed() -> None:
    graph = prepared({"x": (abs, -1), "alias": "x", "y": (abs, "alias"), "z": (abs, "alias")}, {"x", "alias", "y", "z"})
    assert graph.target("alias") == "x" and graph.names("y") == {"alias": "x"}
    assert graph.inputs() == {"x": set(), "y": {"x"}, "z": {"x"}}


def test_keys_that_stand_for_themselves() -> None:
    graph = {"a": Alias("a", "b"), "b": Alias("b", "a"), "c": (max, "a", "b"), "d": (min, "a", "b")}
    with pytest.raises(InvalidRequest, match=r"the Dask graph: .*'[ab]' needs '[ab]'"):
        prepared(graph, {"a", "b", "c", "d"})


def test_large_data_that_several_tasks_need_are_a_task_of_their_own() -> None:
    large, small = bytes(SHARED_BYTES_MIN), b"small"
    for data, known in ((large, []), (small, ["data"])):
        graph = prepared({"data": data, "a": (len, "data"), "b": (bytes, "data")}, {"a", "b"})
        assert list(graph.known) == known
    assert "data" not in prepared({"data": large, "a": (len, "data")}, {"a"}).known  # It is in its only task.


def test_a_key_that_there_is_not() -> None:
    with pytest.raises(InvalidRequest, match="keys: 'gone' is not valid; allowed: keys of the Dask graph, which has 1"):
        prepared({"x": 1}, {"gone"})


@pytest.mark.parametrize("edges", [{"a": "b", "b": "a"}, {"a": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_tasks_that_need_themselves_are_an_error(edges: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=r"the Dask graph: .* needs .* tasks that do not need themselves"):
        prepared({key: (abs, other) for key, other in edges.items()}, ["a"])
