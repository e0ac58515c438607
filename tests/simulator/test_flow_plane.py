"""The flow plane in virtual time: costs of counted work, the counted race, and a cluster whose tasks it places."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.graph import FlowGraph
from simulator.flow.costs import VISITS_PER_STEP, FlowCosts
from simulator.flow.counted_race import COST_SCALING, NOTHING, RELAXATION, CountedRace, Solvers
from simulator.flow.inputs import Input, Inputs
from simulator.flow.plane import FlowCluster, SimulatedPlane, SimulatedTask
from sparrow_py.errors import InvalidOption, InvalidRequest
from tests.support.flow_problems import oracle_cost

COSTS = FlowCosts(round_us=500, node_ns=100, task_us=100, run_us=30, gone_us=10, relaxation_us=50, visit_ns=40,
                  step_ns=20, scaling_us=30, scaling_arc_ns=50, scaling_step_ns=100, far_step_ns=1_000)  # fmt: skip


def task(name: str, duration_s: float = 1.0, **fields: object) -> SimulatedTask:
    return SimulatedTask(name, "job", duration_s, **fields)  # type: ignore[arg-type]


def played(cluster: FlowCluster, jobs: list[tuple[float, int, float]], until_s: float = 1_000.0) -> SimulatedPlane:
    """Jobs: when, how many tasks, of what duration."""
    plane = SimulatedPlane(cluster)
    inputs = Inputs(cluster.names(), 1)
    for number, (at_s, count, duration_s) in enumerate(jobs):
        tasks = [task(f"{number}.{index}", duration_s, input=inputs.draw()) for index in range(count)]
        plane.submit_at(at_s, tasks)
    plane.run(until_s)
    return plane


# ---- costs -----------------------------------------------------------------------------------------------------------


def test_costs_are_sums_of_counted_work() -> None:
    assert COSTS.round_s(nodes=1_000, tasks=3, run=4, gone=2) == pytest.approx(
        500e-6 + 100e-6 + 300e-6 + 120e-6 + 20e-6
    )
    assert COSTS.relaxation_s(100, 1_000) == pytest.approx(50e-6 + 4e-6 + 20e-6)
    assert COSTS.scaling_s(1_000, 30) == pytest.approx(30e-6 + 50e-6 + 3e-6 + 0.03e-6)
    assert COSTS.scaling_s(10**6, 30) == pytest.approx(30e-6 + 50e-3 + 3e-6 + 30e-6)


@given(st.integers(0, 10**9))
def test_as_many_steps_as_fit_into_a_time(steps: int) -> None:
    assert abs(COSTS.steps_in(COSTS.relaxation_s(VISITS_PER_STEP * steps, steps)) - steps) <= 1
    assert abs(COSTS.scaling_steps_in(COSTS.scaling_s(1_000, steps), 1_000) - steps) <= 1


def test_bad_costs_are_named() -> None:
    with pytest.raises(InvalidRequest, match="step_ns"):
        FlowCosts(step_ns=-1)
    with pytest.raises(InvalidOption, match="slots"):
        FlowCluster(machines=1, slots=0)
    with pytest.raises(InvalidOption, match="machines"):
        Inputs([], 1)


def test_inputs_are_the_same_for_equal_seeds() -> None:
    machines = [f"m{number}" for number in range(5)]
    one, same, other = (Inputs(machines, seed) for seed in (1, 1, 2))
    drawn = [one.draw() for _ in range(50)]
    assert drawn == [same.draw() for _ in range(50)] != [other.draw() for _ in range(50)]
    assert all(sum(input.local.values()) >= 0 and len(input.local) <= 5 for input in drawn)


# ---- the race --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step_ns, winner", [(0.1, RELAXATION), (1e5, COST_SCALING)], ids=["relaxation cheap", "relaxation dear"]
)
def test_the_race_is_won_by_whose_counted_work_costs_less(step_ns: float, winner: str) -> None:
    problem = quincy_graph(60, arriving=0.3).problem
    costs = FlowCosts(step_ns=step_ns, scaling_arc_ns=50, scaling_step_ns=100)
    graph = FlowGraph.of(problem)
    race = CountedRace(graph, Solvers.RACE, costs)
    assert race.solve() == winner and race.wins == {winner: 1}
    assert graph.solution().cost == oracle_cost(problem)
    assert race.solve() == NOTHING and race.wins == {winner: 1}
    alone = []
    for solvers in (Solvers.RELAXATION, Solvers.COLD):
        other = CountedRace(FlowGraph.of(problem), solvers, costs)
        other.solve()
        alone.append(other.spent_s)
    assert race.spent_s <= 4 * min(alone)


@pytest.mark.parametrize("solvers", Solvers)
def test_all_solvers_find_the_least_cost(solvers: Solvers) -> None:
    problem = quincy_graph(20).problem
    race = CountedRace(FlowGraph.of(problem), solvers, COSTS)
    race.solve()
    assert race.graph.solution().cost == oracle_cost(problem) and race.spent_s > 0


# ---- the plane -------------------------------------------------------------------------------------------------------


def test_a_task_is_placed_when_the_round_is_over() -> None:
    plane = played(FlowCluster(machines=2, slots=1, costs=COSTS), [(5.0, 1, 3.0)])
    (done,) = plane.done
    first = next(one for one in plane.rounds if one.told)
    assert first.began_s == 5.0 and first.took_s >= 600e-6
    assert done.placed_s == pytest.approx(5.0 + first.took_s)
    assert done.ended_s == pytest.approx(8.0 + first.took_s)


def test_what_comes_during_a_round_waits_for_the_next() -> None:
    slow = FlowCosts(round_us=1e6)
    plane = played(FlowCluster(machines=5, costs=slow), [(5.0, 1, 10.0), (5.5, 1, 10.0)])
    placed_s = sorted(one.placed_s or 0.0 for one in plane.done)
    assert placed_s == [pytest.approx(6.0, abs=0.01), pytest.approx(7.0, abs=0.01)]


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("solvers", [Solvers.RACE, Solvers.COLD])
def test_equal_seeds_give_equal_bytes(keeps: bool, solvers: Solvers) -> None:
    cluster = FlowCluster(machines=10, slots=2, keeps_running=keeps, solvers=solvers, costs=COSTS)
    jobs = [(0.1 * number, 1 + number % 7, 0.5) for number in range(15)]
    one, same = (played(cluster, jobs) for _ in range(2))
    assert [astuple(done) for done in one.rounds] == [astuple(done) for done in same.rounds]
    assert [(done.name, done.placed_s, done.ended_s) for done in one.done] == [
        (done.name, done.placed_s, done.ended_s) for done in same.done
    ]


class Watched(SimulatedPlane):
    """Fails if a machine ever has more tasks than slots, once all that was placed has started."""

    def _carry_out(self, placed: object) -> None:
        super()._carry_out(placed)  # type: ignore[arg-type]
        held = Counter(one.machine for one in self.tasks.values() if one.machine is not None)
        assert max(held.values(), default=0) <= self.cluster.slots


@settings(max_examples=25, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.floats(0, 3), st.integers(1, 8), st.floats(0.001, 2)), min_size=1, max_size=8),
    keeps=st.booleans(),
    machines=st.integers(1, 4),
    slots=st.integers(1, 3),
    round_us=st.sampled_from([0.0, 1e3, 1e6]),
)
def test_every_task_runs_to_its_end_and_no_machine_is_overfilled(
    jobs: list[tuple[float, int, float]], keeps: bool, machines: int, slots: int, round_us: float
) -> None:
    cluster = FlowCluster(machines=machines, slots=slots, keeps_running=keeps, costs=FlowCosts(round_us=round_us))
    plane = Watched(cluster)
    for number, (at_s, count, duration_s) in enumerate(jobs):
        plane.submit_at(at_s, [task(f"{number}.{index}", duration_s) for index in range(count)])
    plane.run(1_000.0)
    assert not plane.tasks
    assert len(plane.done) == sum(count for _, count, _ in jobs)
    for done in plane.done:
        assert done.placed_s is not None and done.ended_s is not None
        assert done.submitted_s <= done.placed_s <= done.ended_s


def test_a_task_that_is_moved_keeps_what_it_has_done() -> None:
    """It runs where its data are not, as long as another task holds that machine's slot."""
    cluster = FlowCluster(machines=2, slots=1, costs=FlowCosts())
    plane = SimulatedPlane(cluster)
    there = Input(40_000_000_000, {"m0": 40_000_000_000})
    plane.begin([(task("holds", 5.0), "m0", 1_000.0)])
    plane.submit_at(1.0, [task("moves", 10.0, input=there)])
    plane.run(100.0)
    moved = next(done for done in plane.done if done.name == "moves")
    assert plane.moved == 1
    assert moved.ended_s == pytest.approx(11.0, abs=0.01)


def test_tasks_that_run_at_the_beginning_end_when_they_are_due() -> None:
    for keeps in (True, False):
        plane = SimulatedPlane(FlowCluster(machines=2, slots=1, keeps_running=keeps, costs=COSTS))
        plane.begin([(task("short", 2.0), "m0", 10.0), (task("service", float("inf")), "m1", 10.0)])
        plane.submit_at(0.5, [task("waits", 1.0)])
        plane.run(50.0)
        assert [(done.name, round(done.ended_s or 0, 1)) for done in plane.done] == [("short", 2.0), ("waits", 3.0)]
        assert list(plane.tasks) == ["service"]
