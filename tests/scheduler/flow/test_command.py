"""`python -m scheduler.flow solve`: what it prints, and how it fails."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings

from scheduler.flow import dimacs, solve_command, solver_table
from scheduler.flow.__main__ import main
from scheduler.flow.problem import InfeasibleError, Problem, Solution
from tests.support.documents import ROOT, blocks
from tests.support.flow_problems import INFEASIBLE, KNOWN, Known, chains, file_of, oracle_cost, oracle_solve

SIX = "".join(dimacs.write(KNOWN[0].problem))
CHANGED = f"{SIX}c EOI\nx 1 2 0 1 1\nc EOI\nc EOS\n"


@pytest.fixture(autouse=True)
def by_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's own work is what counts here: OR-tools solves."""
    monkeypatch.setattr(solve_command, "solver", lambda name: oracle_solve)


def run(*arguments: str, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=text)


@pytest.mark.parametrize("known", KNOWN, ids=repr)
def test_it_prints_the_cost_and_what_flows(known: Known, tmp_path: Path) -> None:
    file = tmp_path / "problem.min"
    file.write_text("".join(dimacs.write(known.problem)))
    result = run("solve", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    first, *flows = result.stdout.splitlines()
    assert first == f"s {known.cost}"
    sent = sum(int(line.split()[3]) for line in flows if int(line.split()[1]) - 1 == known.numbers.get("1", 0))
    assert sent == known.problem.supply[known.numbers.get("1", 0)]


def test_it_prints_a_solution_for_each_iteration() -> None:
    result = run("solve", "-", text=CHANGED)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line for line in lines if line[0] in "sc"] == ["s 38", "c EOI", "s 40", "c EOI"]


@pytest.mark.parametrize("known", INFEASIBLE, ids=repr)
def test_what_has_no_solution_is_one_line(known: Known) -> None:
    result = run("solve", "-", text="".join(dimacs.write(known.problem)))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("flow: <stdin>: problem 1: ")
    assert result.stderr.count("\n") == 1


def test_a_node_from_which_nothing_finds_a_way_is_named_as_the_file_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve_command, "solver", solver_table.solver)
    text = "p min 3 1\nn 1 1 1\nn 3 -1 3\na 1 2 0 1 5\n"
    for name in ("relaxation", "successive-paths"):
        result = run("solve", "-", "--solver", name, text=text)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr in [
            "flow: <stdin>: problem 1: node 1: 1 unit finds no way from there\n",
            "flow: <stdin>: problem 1: node 3: 1 unit finds no way to there\n",
        ]


def test_what_was_solved_before_a_fault_is_printed() -> None:
    result = run("solve", "-", text=f"{SIX}c EOI\nx 1 6 0 1 1\n")
    assert result.exit_code == 1
    assert result.stdout.startswith("s 38\n")
    assert result.stderr == "flow: <stdin>: line 13: there is no arc from 1 to 6\n"


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    result = run("solve", "-", text=b"\x1b[2J\xff\n")
    assert (result.exit_code, result.stderr) == (
        1,
        "flow: <stdin>: line 1: it begins with '\\x1b[2J\\xff'; allowed are c, p, n, a, x, r, d\n",
    )
    missing = run("solve", str(tmp_path / "missing"))
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    assert "missing" in missing.stderr


def test_a_solver_that_errs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(problem: Problem, start: object) -> Solution:
        solution = oracle_solve(problem)
        return Solution(solution.flow, solution.potential, solution.cost - 1)

    monkeypatch.setattr(solve_command, "solver", lambda name: wrong)
    result = run("solve", "-", text=SIX)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "problem 1: the solver relaxation has made a mistake: the cost is 38, not 37" in result.stderr


def test_the_solver_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    monkeypatch.setattr(solve_command, "solver", lambda name: names.append(name) or oracle_solve)
    for name in solver_table.SOLVERS:
        assert run("solve", "-", "--solver", name, text=SIX).stdout.startswith("s 38\n")
    assert names == list(solver_table.SOLVERS)
    result = run("solve", "-", "--solver", "guess", text=SIX)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("package", ["numba", "numpy"])
def test_a_missing_extra_is_one_line_at_the_start(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    result = run("solve", "-", text=SIX)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"flow: the package {package} is not installed; it comes with ")
    assert "[flow]" in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_is_plain() -> None:
    assert "solve  Solve the min-cost-flow problems of a DIMACS file." in run("--help").stdout
    text = run("solve", "--help").stdout
    assert "Examples:\n" in text
    assert "\x1b" not in text


@pytest.mark.processes
def test_a_pipe_gets_each_solution_at_once() -> None:
    command = [sys.executable, "-c", BY_THE_ORACLE, "solve", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{SIX}c EOI\n")
        process.stdin.flush()
        first = [process.stdout.readline()]
        while first[-1] != "c EOI\n":
            assert first[-1]
            first.append(process.stdout.readline())
        assert first[0] == "s 38\n"
        rest, _ = process.communicate("x 1 2 0 1 1\nc EOI\nc EOS\n")
    assert rest.startswith("s 40\n")
    assert process.returncode == 0


BY_THE_ORACLE = """
from scheduler.flow import solve_command
from scheduler.flow.__main__ import main
from tests.support.flow_problems import oracle_solve

solve_command.solver = lambda name: oracle_solve
main()
"""


# ---- with the solvers ----------------------------------------------------------------------------------------------

there = [name for name, module in solver_table.SOLVERS.items() if importlib.util.find_spec(module)]


@pytest.mark.parametrize("name", there)
def test_each_solver_solves_a_file_and_its_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve_command, "solver", solver_table.solver)
    result = run("solve", "-", "--solver", name, text=CHANGED)
    assert [line for line in result.stdout.splitlines() if line[0] in "sc"] == ["s 38", "c EOI", "s 40", "c EOI"]


@pytest.mark.parametrize("name", there)
@settings(max_examples=50)
@given(chains())
def test_changes_cost_what_a_new_problem_costs(name: str, chain: list[Problem]) -> None:
    costs = []
    for problem in chain:
        try:
            costs.append(f"s {oracle_cost(problem)}")
        except InfeasibleError:
            break
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve_command, "solver", solver_table.solver)
        result = run("solve", "-", "--solver", name, text=file_of(chain))
    assert [line for line in result.stdout.splitlines() if line[0] == "s"] == costs
    assert result.exit_code == (len(costs) < len(chain)), result.stderr
    assert ("has made a mistake" in result.stderr) is False


CUT_OFF = """\
p min 5 4
n 1 -4
n 2 7
n 3 -7
n 4 7
n 5 -3
a 2 1 1 5 -11
a 2 5 2 8 -10
a 4 3 1 7 -1
a 2 1 0 4 -9
c EOI
n 1 -6
n 3 -5
x 2 1 3 3 -8 0 -11
x 2 5 0 3 -8 0 -10
a 5 1 0 2 18
a 1 5 0 2 18
c EOI
"""
"""In the end two units of node 4 find no way, while others do."""


@pytest.mark.parametrize("name", there)
def test_units_without_a_way_end_the_search_beside_others_that_have_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solve_command, "solver", solver_table.solver)
    result = run("solve", "-", "--solver", name, text=CUT_OFF)
    assert result.exit_code == 1
    assert result.stdout.startswith("s -81\n")
    assert result.stderr.startswith("flow: <stdin>: problem 2: ")


# ---- the document --------------------------------------------------------------------------------------------------


def test_the_document_shows_what_is_printed() -> None:
    file, printed = blocks(ROOT / "docs" / "flow.md", "text")
    assert run("solve", "-", text=file).stdout == printed
