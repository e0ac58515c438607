"""Of two solvers the first to finish answers, and stops the other; one that fails leaves the answer to the other."""

from __future__ import annotations

import threading

import pytest

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.problem import InfeasibleError, Problem, Solution, StoppedError
from scheduler.flow.solvers import cost_scaling, cycle_cancelling
from scheduler.flow.solvers.race import race
from scheduler.flow.solvers.solver import Solve
from scheduler.flow.solvers.stopping import StopFlag, stop_flag
from tests.support.flow_problems import INFEASIBLE, KNOWN, integers

PROBLEM = KNOWN[0].problem
COST = KNOWN[0].cost
SOLUTION = Solution(integers([]), integers([]), 7)


class Endless:
    """A solver that finds nothing until it is stopped."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.was_stopped = False

    def __call__(self, problem: Problem, start: Solution | None, stop: StopFlag | None) -> Solution:
        del problem, start
        assert stop is not None
        self.began.set()
        while stop[0] == 0:
            threading.Event().wait(0.001)
        self.was_stopped = True
        raise StoppedError("stopped")


class After:
    """A solver that answers once an event has come."""

    def __init__(self, event: threading.Event) -> None:
        self.event = event

    def __call__(self, problem: Problem, start: Solution | None, stop: StopFlag | None) -> Solution:
        del problem, start, stop
        assert self.event.wait(60)
        return SOLUTION


class Failing:
    """A solver with a bug, or one that says that there is no answer."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def __call__(self, problem: Problem, start: Solution | None, stop: StopFlag | None) -> Solution:
        del problem, start, stop
        raise self.failure


def immediate(problem: Problem, start: Solution | None, stop: StopFlag | None) -> Solution:
    """A solver that has the answer."""
    del problem, start, stop
    return SOLUTION


@pytest.fixture(autouse=True)
def no_thread_is_left() -> object:
    """Whatever becomes of a race."""
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_to_finish_stops_the_other(winner: int) -> None:
    endless = Endless()
    quick = After(endless.began)
    runners: tuple[Solve, Solve] = (quick, endless) if winner == 0 else (endless, quick)
    raced = race(*runners, PROBLEM)
    assert (raced.solution, raced.winner, raced.failures) == (SOLUTION, winner, (None, None))
    assert endless.was_stopped


def test_the_second_need_not_start() -> None:
    never = Endless()
    raced = race(immediate, never, PROBLEM, second_after_s=60)
    assert (raced.winner, raced.started, never.began.is_set()) == (0, 1, False)


def test_the_second_starts_when_its_time_has_come() -> None:
    endless = Endless()
    raced = race(endless, After(endless.began), PROBLEM, second_after_s=0.001)
    assert (raced.winner, raced.started, endless.was_stopped) == (1, 2, True)


@pytest.mark.parametrize("failure", [RuntimeError("a bug"), InfeasibleError("nothing goes")], ids=repr)
def test_the_other_answers_for_one_that_fails(failure: Exception) -> None:
    raced = race(Failing(failure), immediate, PROBLEM, second_after_s=60)
    assert (raced.solution, raced.winner, raced.failures) == (SOLUTION, 1, (failure, None))
    gate = threading.Event()
    failing = Failing(failure)

    def fails_first(problem: Problem, start: Solution | None, stop: StopFlag | None) -> Solution:
        gate.set()
        return failing(problem, start, stop)

    raced = race(After(gate), fails_first, PROBLEM)
    assert raced.winner == 0
    assert raced.failures[1] in (None, failure)  # The race may be over before the failure is known.


def test_both_fail() -> None:
    bug, infeasible = RuntimeError("a bug"), InfeasibleError("nothing goes")
    with pytest.raises(InfeasibleError) as raised:
        race(Failing(bug), Failing(infeasible), PROBLEM)
    assert raised.value.__notes__ == ["the other solver of the race raised RuntimeError('a bug')"]
    with pytest.raises(RuntimeError, match="first"):
        race(Failing(RuntimeError("first")), Failing(RuntimeError("second")), PROBLEM)


@pytest.mark.parametrize("second_after_s", [0.0, 60.0])
def test_a_race_that_is_told_to_stop_stops_both(second_after_s: float) -> None:
    first, second = Endless(), Endless()
    flag = stop_flag()

    def stops() -> None:
        assert first.began.wait(60)
        assert second_after_s or second.began.wait(60)
        flag[0] = 1

    stopper = threading.Thread(target=stops)
    stopper.start()
    with pytest.raises(StoppedError):
        race(first, second, PROBLEM, None, flag, second_after_s=second_after_s)
    stopper.join()
    assert first.was_stopped
    assert second.was_stopped == (second_after_s == 0)


def test_real_solvers_race() -> None:
    raced = race(cost_scaling.solve, cycle_cancelling.solve, PROBLEM)
    assert raced.solution.cost == COST
    with pytest.raises(InfeasibleError):
        race(cost_scaling.solve, cycle_cancelling.solve, INFEASIBLE[0].problem)


def test_real_solvers_stop_each_other_and_start_from_the_winners_answer() -> None:
    problem = quincy_graph(20).problem
    start = cost_scaling.solve(problem)
    for _ in range(20):
        raced = race(cost_scaling.solve, cycle_cancelling.solve, problem, start)
        assert raced.solution.cost == start.cost
        assert raced.failures == (None, None)
        start = raced.solution
