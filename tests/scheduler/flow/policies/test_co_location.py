"""Tasks stay away from what hurts them: by a table, or by what runs that were measured say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.flow.policies.co_location import (
    COST_MAX,
    ROWS_MAX,
    TASKS,
    CoLocation,
    MeasuredRun,
    Penalty,
    fitted,
    table_of,
)
from scheduler.flow.policies.policy import Aggregator, Cluster, Machine, Task
from scheduler.flow.policies.table import PolicyNameError, policy_named
from scheduler.flow.problem import ProblemError
from tests.support.flow_policies import placed

GPU = Task("a", "j", demand={"gpu": 1, "net": 5})
NET = Task("b", "j", demand={"net": 5})
PLAIN = Task("c", "j")
TABLE = (
    Penalty("gpu", "cpu", 10),
    Penalty("gpu", "cpu", 1, "big"),
    Penalty("gpu", TASKS, 50),
    Penalty("net", "net_in", 3),
    Penalty("", TASKS, 5),
)


def test_tasks_whose_stage_used_much_of_a_resource_are_of_its_class_without_demanding_it() -> None:
    policy = CoLocation(table=[Penalty("net", TASKS, 1, measured_min=10), Penalty("gpu", TASKS, 1)])
    assert [policy.class_of(replace(PLAIN, expected={"net": used})) for used in (0, 9.9, 10)] == ["", "", "net"]
    assert policy.class_of(replace(PLAIN, expected={"gpu": 1e9})) == ""
    reading = replace(PLAIN, expected={"net_bytes_per_s": 50e6})
    assert (CoLocation().class_of(PLAIN), CoLocation().class_of(reading)) == ("", "net_bytes_per_s")


def test_what_tasks_are_expected_to_use_counts_beside_what_is_measured_if_it_is_more() -> None:
    """So the second of two tasks, placed before anything of the first was measured, goes elsewhere."""
    policy = CoLocation(table=[Penalty("", "cpu", 10), Penalty("", "net_in_bytes_per_s", 1)])
    machines = [
        replace(busy("a"), expected={"cpu": 3.0}),
        replace(busy("b", cpu=2.0), expected={"cpu": 1.0}),
        replace(busy("c"), expected={"net_bytes_per_s": 21.0}),
    ]
    policy.see(Cluster.of(machines, []))
    costs = {arc.to: arc.cost(0) for arc in policy.aggregator_arcs(Aggregator("class", "")) if callable(arc.cost)}
    assert costs == {"a": 30, "b": 20, "c": 21}


def test_measured_min_may_stand_in_the_file_and_is_above_0(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text('[{"task": "net", "beside": "tasks", "cost": 1, "measured_min": 5}]')
    assert table_of(path) == [Penalty("net", TASKS, 1, measured_min=5)]
    path.write_text('[{"task": "net", "beside": "tasks", "cost": 1, "measured_min": 0}]')
    with pytest.raises(ProblemError, match=r"row 1: measured_min of 'net' beside 'tasks' is 0.0; allowed are"):
        table_of(path)


def busy(name: str, running: int = 0, machine_type: str = "", slots: int = 4, **load: float) -> Machine:
    return Machine(name, "r", slots, running=running, attributes={"machine_type": machine_type}, load=load)


def costs(policy: CoLocation, machine: Machine, units: int = 2) -> dict[str, list[int]]:
    """By class: what units to the machine cost."""
    found = {}
    for aggregator, arc in policy.machine_arcs(machine).items():
        assert not isinstance(arc.cost, int) and arc.to == machine.name and arc.capacity == machine.slots
        found[aggregator.name] = [arc.cost(unit) for unit in range(units)]
    return found


def test_a_task_is_of_the_first_class_that_it_demands() -> None:
    policy = CoLocation(table=TABLE)
    assert [policy.class_of(task) for task in (GPU, NET, PLAIN)] == ["gpu", "net", ""]


def test_a_machine_costs_what_the_table_says_for_what_is_there() -> None:
    policy = CoLocation(table=TABLE)
    assert costs(policy, busy("m", 2, cpu=3.0, net_in=100.0)) == {"gpu": [130, 180], "net": [300, 300], "": [10, 15]}
    assert costs(policy, busy("m", 2, "big", cpu=3.0)) == {"gpu": [103, 153], "net": [0, 0], "": [10, 15]}
    assert costs(policy, busy("m", 2, "other", cpu=3.0))["gpu"] == [130, 180]
    impossible = costs(policy, busy("m", cpu=1e30, net_in=-1e30))
    assert impossible == {"gpu": [COST_MAX, COST_MAX + 50], "net": [0, 0], "": [0, 5]}


def test_tasks_go_where_nothing_hurts_them() -> None:
    machines = [busy("a", cpu=8.0), busy("b", net_in=50.0), busy("c", running=3)]
    assert placed(CoLocation(table=TABLE), [GPU], machines) == {"a": "b"}
    assert placed(CoLocation(table=TABLE), [PLAIN], machines[1:]) == {"c": "b"}
    assert placed(CoLocation(table=TABLE), [NET], machines[1:]) == {"b": "c"}


def test_tasks_of_a_class_that_come_at_once_keep_apart() -> None:
    """§5.3.1: else all three would go to the machine that was best before."""
    machines = [busy("a"), busy("b", cpu=1.0), busy("c", cpu=2.0)]
    tasks = [replace(GPU, name=f"t{number}") for number in range(3)]
    assert sorted(placed(CoLocation(table=TABLE), tasks, machines).values()) == ["a", "b", "c"]


def test_a_table_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps([{"task": "gpu", "beside": "cpu", "cost": 2, "machine_type": "big"}]))
    assert table_of(path) == [Penalty("gpu", "cpu", 2, "big")]
    policy = policy_named(f"co-location,table_file={path}")
    assert isinstance(policy, CoLocation) and policy.penalty("gpu", "cpu", "big") == 2


ROW = {"task": "", "beside": "cpu", "cost": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read: "),
        ("{}", "has a dict; allowed is a list of objects"),
        ("[1]", "row 1: allowed is an object with task, beside, cost and, if need be, machine_type"),
        (json.dumps([ROW, {"task": "", "cost": 1}]), "row 2: allowed is an object"),
        (json.dumps([{**ROW, "price": 1}]), "row 1: allowed is an object"),
        (json.dumps([{**ROW, "cost": "1"}]), "row 1: cost is '1'; allowed is a number"),
        (json.dumps([{**ROW, "cost": True}]), "row 1: cost is True; allowed is a number"),
        (json.dumps([{**ROW, "task": 1}]), "row 1: task is 1; allowed is text"),
        (json.dumps([{**ROW, "cost": -1}]), "row 1: the penalty of '' beside 'cpu' is -1.0; allowed are 0 to 1e"),
        ('[{"task": "", "beside": "cpu", "cost": NaN}]', "row 1: the penalty of '' beside 'cpu' is nan"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(content)
    with pytest.raises(PolicyNameError, match=f"table_file {path}.*{words}"):
        policy_named(f"co-location,table_file={path}")


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"cannot be read: .*No such file"):
        CoLocation(table_file=str(tmp_path / "none"))
    with pytest.raises(ProblemError, match="has 1,001 rows; allowed are up to 1,000"):
        CoLocation(table=TABLE[:1] * (ROWS_MAX + 1))
    with pytest.raises(ProblemError, match="waiting_cost is -1; allowed are numbers from 0"):
        CoLocation(waiting_cost=-1)


# ---- from measured runs ----------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=2, max_size=12),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_penalties_that_made_runs_slower_are_found_again(
    loads: list[tuple[int, int]], of_tasks: int, of_cpu: int
) -> None:
    """At least what they explain: of loads that always come together nobody can tell which one it was."""
    runs = [
        MeasuredRun("", {TASKS: tasks, "cpu": cpu}, 2.0 * (1 + 0.1 * (of_tasks * tasks + of_cpu * cpu)), 2.0)
        for tasks, cpu in loads
    ]
    table = {row.beside: row.cost for row in fitted(runs)}
    for tasks, cpu in loads:
        slower = sum(table.get(name, 0) * amount for name, amount in ((TASKS, tasks), ("cpu", cpu)))
        assert slower == pytest.approx(100 * (of_tasks * tasks + of_cpu * cpu), abs=1e-3)


def test_classes_and_types_of_machines_are_fitted_apart_and_nothing_makes_faster() -> None:
    runs = [
        MeasuredRun("gpu", {"cpu": 2.0}, 3.0, 1.0),
        MeasuredRun("gpu", {"cpu": 2.0}, 1.5, 1.0, "big"),
        MeasuredRun("", {"cpu": 2.0, "net_in": 0.0}, 4.0, 2.0),
        MeasuredRun("", {"cpu": 2.0, "net_in": 1.0}, 2.0, 2.0),
    ]
    table = {(row.task, row.beside, row.machine_type): row.cost for row in fitted(runs)}
    assert table["gpu", "cpu", ""] == pytest.approx(1000)
    assert table["gpu", "cpu", "big"] == pytest.approx(250)
    assert ("", "net_in", "") not in table and table["", "cpu", ""] == pytest.approx(250)
    assert placed(CoLocation(table=fitted(runs)), [GPU], [busy("m", cpu=1.0), busy("n")]) == {"a": "n"}
    with pytest.raises(ProblemError, match=r"a run of '' took 1.0 s, 0 s alone; allowed are above 0"):
        fitted([MeasuredRun("", {}, 1.0, 0)])
