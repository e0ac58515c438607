"""What a job is made into before it is cut at its shuffle.

Aggregations are in two steps: mappers aggregate what they have, reducers put the parts together (thesis, §3.4.1). A
relation that is shuffled by two keys, as where it is joined with itself, passes the shuffle twice, so it gets a copy.
"""

from __future__ import annotations

from collections.abc import Iterable

from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Dag,
    Function,
    Operator,
    Output,
    Project,
    Relation,
    free_name,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import column
from frontends.workflow.jobs.classes import associative, class_of
from frontends.workflow.jobs.shuffling import Shuffle

COMBINED = {
    Function.COUNT: Function.SUM,
    Function.SUM: Function.SUM,
    Function.MIN: Function.MIN,
    Function.MAX: Function.MAX,
}
"""What puts the parts of an aggregation together; an average is a sum and a count."""


def before_shuffle(operators: Iterable[Operator], mapped: Iterable[str] = ()) -> frozenset[str]:
    """The relations that mappers make: those of operators that do not shuffle, nor read what one that does makes.

    mapped: operators that mappers do although they shuffle by themselves: aggregations of what one mapper has, and
    joins with what each has whole.
    """
    before: set[str] = set()
    mappers = frozenset(mapped)
    for operator in operators:
        if (operator.name in mappers or not class_of(operator).shuffles) and before.issuperset(operator.inputs):
            before.add(operator.name)
    return frozenset(before)


def combined(job: Dag, joins: Iterable[str] = ()) -> tuple[Dag, frozenset[str]]:
    """The job, in which each aggregation of what mappers make is in two steps; and the names of the operators that
    mappers do although they shuffle by themselves: the first steps, and these joins."""
    mapped = set(joins)
    before = before_shuffle(job.operators, mapped)
    taken = set(job.names)
    operators: list[Operator] = []
    for operator in job.operators:
        if isinstance(operator, Aggregate) and operator.source.name in before and associative(operator):
            steps = _steps(operator, taken)
            mapped.add(steps[0].name)
            operators += steps
            taken.update(one.name for one in steps)
        else:
            operators.append(operator)
    return Dag.relinked(operators, job.results), frozenset(mapped)


def with_copies(job: Dag, shuffle: Shuffle, mapped: frozenset[str]) -> Dag:
    """The job, in which no relation that mappers make is shuffled by two keys: others than the first are of copies.

    mapped: what mappers make.
    """
    operators: list[Operator] = []
    taken = set(job.names)
    keys: dict[str, list[str]] = {}
    for operator in job.operators:
        sources = list(operator.sources)
        own = shuffle.keys(operator) if operator.name not in mapped else ()
        for place, key in enumerate(own):
            source = sources[place]
            if source.name in mapped and keys.setdefault(source.name, sorted(key)) != sorted(key):
                copy = _copy(source, free_name(f"{source.name}_again", taken))
                taken.add(copy.name)
                operators.append(copy)
                sources[place] = copy.relation
        operators.append(operator.over(*sources) if own else operator)
    return Dag.relinked(operators, job.results)


def _copy(source: Relation, name: str) -> Project:
    return Project(name=name, source=source, columns=tuple(Output.column(column) for column in source.schema.names))


def _steps(one: Aggregate, taken: Iterable[str]) -> list[Operator]:
    """What mappers do, what reducers do, and, if there are averages, the quotients."""
    names = {*one.schema.names}
    parts: list[Aggregation] = []
    outputs = [Output.column(key) for key in one.keys]
    for column_ in one.aggregations:
        if column_.function is not Function.AVG:
            parts.append(column_)
            outputs.append(Output.column(column_.name))
            continue
        total, count = (free_name(f"{column_.name}_{part}", names) for part in ("total", "count"))
        names |= {total, count}
        parts += [Aggregation(total, Function.SUM, column_.column), Aggregation(count, Function.COUNT, column_.column)]
        outputs.append(Output(column_.name, _quotient(total, count)))
    first = Aggregate(
        name=free_name(f"{one.name}_of_mapper", taken),
        source=one.source,
        keys=one.keys,
        aggregations=tuple(parts),
        at=one.at,
    )
    whole = tuple(Aggregation(part.name, COMBINED[part.function], part.name) for part in parts)
    if len(parts) == len(one.aggregations):
        return [first, Aggregate(name=one.name, source=first.relation, keys=one.keys, aggregations=whole, at=one.at)]
    totals = free_name(f"{one.name}_totals", [*taken, first.name])
    second = Aggregate(name=totals, source=first.relation, keys=one.keys, aggregations=whole, at=one.at)
    return [first, second, Project(name=one.name, source=second.relation, columns=tuple(outputs), at=one.at)]


def _quotient(total: str, count: str) -> Scalar:
    """Null if the total is."""
    return Scalar(f"{column(total).sql()} / {column(count).sql()}")
