"""`python -m scheduler.flow solve`: the problems of a DIMACS file, solved one after the other."""

from __future__ import annotations

import sys
from typing import BinaryIO

import click
import numpy as np

from scheduler.flow import check, dimacs
from scheduler.flow.problem import FlowError, InfeasibleError, Problem, Solution, UnmetError
from scheduler.flow.solver_table import DEFAULT, SOLVERS, solver


@click.command("solve", short_help="Solve the min-cost-flow problems of a DIMACS file.")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--solver",
    "name",
    type=click.Choice(list(SOLVERS)),
    default=DEFAULT,
    show_default=True,
    help="The algorithm. All find the same cost, though not always the same flow.",
)
def solve(file: BinaryIO, name: str) -> None:
    """Solve the min-cost-flow problem of FILE (- for stdin), and print the solution as DIMACS writes it: `s COST`, then
    `f TAIL HEAD FLOW` for each arc that carries something.

    FILE may go on with changes (docs/flow.md). Then there is a solution for each iteration, as soon as its `c EOI` has
    been read, and `c EOI` after it. What is wrong with FILE, or has no solution, is said on one line; the exit status
    is then 1.

    \b
    Examples:
      python -m scheduler.flow solve cluster.min
      python -m scheduler.flow solve --solver cost-scaling - < cluster.min
    """
    run = solver(name)
    number = 0
    before: Solution | None = None
    try:
        for iteration in dimacs.read(file):
            number += 1
            try:
                solution = run(iteration.problem, before and carried_on(before, iteration.problem))
            except InfeasibleError as error:
                words = error.words(first_node=1) if isinstance(error, UnmetError) else error
                raise InfeasibleError(f"problem {number}: {words}") from None
            fault = check.fault_of_solution(iteration.problem, solution)
            if fault:
                raise FlowError(f"problem {number}: the solver {name} has made a mistake: {fault}")
            sys.stdout.writelines(dimacs.write_solution(iteration.problem, solution))
            if iteration.more:
                sys.stdout.write(dimacs.end_of_iteration())
            sys.stdout.flush()
            before = solution
    except FlowError as error:
        raise click.ClickException(f"{getattr(file, 'name', '<stdin>')}: {error}") from None


def carried_on(solution: Solution, problem: Problem) -> Solution:
    """What was found for the iteration before, with nothing on arcs and at nodes that came since: a solver begins with
    it, and solves what has changed."""
    arcs, nodes = len(problem.tail) - len(solution.flow), len(problem.supply) - len(solution.potential)
    return Solution(
        np.append(solution.flow, np.zeros(arcs, np.int64)),
        np.append(solution.potential, np.zeros(nodes, np.int64)),
        solution.cost,
    )
