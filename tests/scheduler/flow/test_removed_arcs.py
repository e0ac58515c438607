"""Files whose arcs are removed, with their node or by capacity 0, and come again: what `x` takes, and what counts."""

from __future__ import annotations

from io import BytesIO

import pytest
from click.testing import CliRunner
from hypothesis import given, settings

from scheduler.flow import dimacs
from scheduler.flow.__main__ import main
from scheduler.flow.problem import InfeasibleError, Problem, ProblemError
from scheduler.flow.solver_table import SOLVERS
from scheduler.flow.solvers import cycle_cancelling
from tests.support.flow_changes import FileOfChanges, files_of_changes
from tests.support.flow_problems import oracle_cost

TEN = "p min 2 1\nn 2 0 3\na 1 2 0 5 10\nc EOI\n"
"""One arc, of capacity 5 and cost 10."""
AGAIN = "n 1 3\na 1 2 0 5 10\n"
NARROW = "x 1 2 0 1 4 0 10\n"


def problems(text: str) -> list[Problem]:
    return [iteration.problem for iteration in dimacs.read(BytesIO(text.encode()))]


def present(problem: Problem) -> list[tuple[int, ...]]:
    """Tail, head, minimum, capacity and cost of arcs that can carry something."""
    columns = problem.tail, problem.head, problem.minimum, problem.capacity, problem.cost
    return sorted(row for row in zip(*(column.tolist() for column in columns), strict=True) if row[3])


@pytest.mark.parametrize(
    "changes",
    [
        f"x 1 2 0 0 10\nc EOI\n{AGAIN}{NARROW}c EOI\n",
        f"x 1 2 0 5 10\nc EOI\nr 1\nc EOI\n{AGAIN}{NARROW}c EOI\n",
        f"x 1 2 0 5 10\nr 1\nc EOI\n{AGAIN}c EOI\n{NARROW}c EOI\n",
        f"r 1\nc EOI\n{AGAIN}{NARROW}c EOI\n",
        f"r 1\n{AGAIN}{NARROW}c EOI\n",
        f"r 1\nc EOI\n{AGAIN}x 1 2 0 1 4\nc EOI\n",
    ],
)
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_arc_that_came_again_is_changed_and_not_the_one_before(changes: str, solver: str) -> None:
    last = problems(TEN + changes)[-1]
    assert present(last) == [(0, 1, 0, 1, 4)]
    result = CliRunner().invoke(main, ["solve", "--solver", solver, "-"], input=TEN + changes)
    assert result.exit_code == 1, result.stdout
    assert "s 24" not in result.stdout
    assert result.stderr.count("\n") == 1


def test_an_arc_that_was_changed_is_found_by_its_new_cost() -> None:
    text = f"{TEN}x 1 2 0 0 10\nc EOI\na 1 2 0 5 10\nn 1 3\n{NARROW}x 1 2 0 1 7 0 4\nc EOI\n"
    assert present(problems(text)[-1]) == [(0, 1, 0, 1, 7)]


def test_an_arc_of_capacity_0_is_made_anew_where_no_other_is_meant() -> None:
    removed = f"{TEN}x 1 2 0 0 6\nc EOI\n"
    assert present(problems(f"{removed}x 1 2 0 2 3\nc EOI\n")[-1]) == [(0, 1, 0, 2, 3)]
    both = problems(f"{removed}a 1 2 0 4 7\nx 1 2 0 2 3 0 6\nc EOI\n")[-1]
    assert present(both) == [(0, 1, 0, 2, 3), (0, 1, 0, 4, 7)]
    assert present(problems(f"{removed}a 1 2 0 4 6\nx 1 2 0 2 3 0 6\nc EOI\n")[-1]) == [(0, 1, 0, 2, 3)]
    with pytest.raises(ProblemError, match="line 7: OLDCOST is 10; of the arcs from 1 to 2 the costs are 6"):
        problems(f"{removed}x 1 2 0 2 3 0 10\n")


def test_an_arc_that_went_with_its_node_is_none() -> None:
    with pytest.raises(ProblemError, match="line 8: there is no arc from 1 to 2"):
        problems(f"{TEN}r 1\nc EOI\nn 1 3\n{NARROW}")


def test_the_cost_of_an_arc_that_went_with_its_node_tells_nothing_apart() -> None:
    text = "p min 3 2\nn 1 0\nn 3 0 3\na 1 2 0 5 5\na 2 3 0 5 0\nc EOI\nr 2\nc EOI\nd 0 0 2\na 1 0 0 0 9\na 0 3 0 5 0\n"
    last = problems(f"{text}c EOI\nn 1 3\nx 1 2 0 5 7\nc EOI\n")[-1]
    assert oracle_cost(last) == 21


@pytest.mark.parametrize("removal", ["r 1\n", "x 1 2 0 0 384307168202282325\n"])
def test_costs_of_removed_arcs_do_not_count_against_the_limit(removal: str) -> None:
    graph = "p min 3 2\nn 3 0 3\na 1 2 0 5 384307168202282325\na 2 3 0 5 0\nc EOI\n"
    result = CliRunner().invoke(main, ["solve", "-"], input=f"{graph}{removal}c EOI\nn 2000 0\nc EOI\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "s 0\nc EOI\n" * 3
    with pytest.raises(ProblemError, match="line 3: COST is 384,307,168,202,282,325; with 2,000 nodes allowed are"):
        problems(f"{graph}n 2000 0\nc EOI\n")


@settings(max_examples=100)
@given(files_of_changes())
def test_what_is_there_is_what_the_lines_say(file: FileOfChanges) -> None:
    found = problems(file.text)
    assert [present(problem) for problem in found] == [present(problem) for problem in file.problems]


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=60)
@given(files_of_changes())
def test_what_is_there_is_solved_as_by_or_tools(solver: str, file: FileOfChanges) -> None:
    costs = []
    for problem in file.problems:
        try:
            costs.append(f"s {oracle_cost(problem)}")
        except InfeasibleError:
            break
    result = CliRunner().invoke(main, ["solve", "--solver", solver, "-"], input=file.text)
    assert [line for line in result.stdout.splitlines() if line[0] == "s"] == costs
    assert result.exit_code == (len(costs) < len(file.problems)), result.stderr
    assert "has made a mistake" not in result.stderr


# ---- cycle cancelling ----------------------------------------------------------------------------------------------

HIGH = """\
p min 9 48
n 1 41933420 0
n 2 56013093 0
n 3 -23774465 1
n 4 24418681 2
n 5 -26443847 2
n 8 42481279 2
n 6 -114628161 3
a 7 1 0 3 13
a 4 8 0 3 15
a 1 5 0 2 10
a 2 6 0 210000000 61
a 6 3 0 3 2
a 6 1 0 210000000 61
a 9 3 0 20195069 14
a 6 8 0 210000000 61
a 2 9 0 1 14
a 8 6 0 210000000 61
a 6 3 0 210000000 61
a 6 7 0 2582375 16
a 9 3 0 2 20
a 9 6 0 210000000 61
a 7 1 0 2 20
a 7 6 0 210000000 61
a 4 9 0 68456256 15
a 2 8 0 1 17
a 5 6 0 210000000 61
a 6 4 0 210000000 61
a 9 2 0 105664843 2
a 6 2 0 210000000 61
a 9 6 0 181031695 15
a 1 6 0 210000000 61
a 7 5 0 3 10
a 1 8 0 3 1
a 5 8 0 3 6
a 5 8 0 2 14
a 6 9 0 2 0
a 3 6 0 210000000 61
a 4 2 0 2 14
a 9 8 0 54387904 0
a 6 7 0 210000000 61
a 3 7 0 3 6
a 6 8 0 6139699 14
a 3 5 0 34837625 14
a 6 5 0 210000000 61
a 2 3 0 3 5
a 6 9 0 210000000 61
a 4 6 0 210000000 61
a 2 3 0 3 7
a 5 9 0 1 16
a 5 9 0 3 8
a 1 5 0 3 0
a 2 1 0 65874937 9
a 3 8 0 3 3
a 2 4 0 2 4
a 9 8 0 3 11
"""
"""Capacities between 1 and 210 million on the same cycles."""


def test_cycle_cancelling_takes_few_steps_where_capacities_are_high(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    cancel = cycle_cancelling.cancel

    def counted(*arguments: object) -> None:
        nonlocal steps
        steps += 1
        assert steps <= 10_000
        cancel(*arguments)

    monkeypatch.setattr(cycle_cancelling, "cancel", counted)
    problem = next(dimacs.read(BytesIO(HIGH.encode()))).problem
    assert cycle_cancelling.solve(problem).cost == oracle_cost(problem)
