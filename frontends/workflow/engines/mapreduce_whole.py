"""What each mapper of a job reads whole, to join it with its share of the rest (`jobs.map_joins`).

A relation may be needed both ways, as where a small table is joined with itself. So what is needed whole is made of
copies: of the files, and of the operators between them and the join. What only the join has read then goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frontends.workflow.ir.dag import Dag, Operator, Side, free_name
from frontends.workflow.jobs.graph import needed
from frontends.workflow.jobs.map_joins import side_name


@dataclass(frozen=True, slots=True)
class WholeSides:
    """A job in which each join that mappers do reads one side of copies.

    original: {copy: the relation that it is a copy of}; what is in it, each mapper has whole.
    """

    job: Dag
    original: Mapping[str, str]


def with_whole_sides(job: Dag, joins: Mapping[str, Side]) -> WholeSides:
    """The job, in which these joins, which mappers do, read the side that is named of copies."""
    if not joins:
        return WholeSides(job, {})
    operators: list[Operator] = []
    taken = set(job.names)
    copies: dict[str, Operator] = {}

    def copy(name: str) -> Operator:
        if name not in copies:
            one = job.operator(name)
            sources = [copy(source).relation for source in one.inputs]
            copies[name] = one.over(*sources).named(free_name(f"{name}_whole", taken))
            taken.add(copies[name].name)
            operators.append(copies[name])
        return copies[name]

    for operator in job.operators:
        side = joins.get(operator.name)
        if side is None:
            operators.append(operator)
            continue
        whole = copy(side_name(operator, side)).relation
        left, right = operator.sources
        operators.append(operator.over(whole, right) if side is Side.LEFT else operator.over(left, whole))
    made = needed(Dag.relinked(operators, job.results))
    return WholeSides(made, {one.name: name for name, one in copies.items()})
