"""Where a language puts the operators that it makes: those of a workflow, and those of the bodies of its loops."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from frontends.workflow.errors import InvalidWorkflow, TooLarge
from frontends.workflow.ir.dag import (
    ITERATIONS_MAX,
    LOOP_DEPTH_MAX,
    OPERATORS_MAX,
    Carried,
    Dag,
    Input,
    LoopCondition,
    Operator,
    Output,
    Project,
    Relation,
    Scan,
    While,
    loop_result,
)
from frontends.workflow.languages.endless import check_ends
from frontends.workflow.languages.renaming import with_columns_named
from frontends.workflow.positions import Position


class Scope:
    """The operators of a workflow, or of a loop's body, in the order in which they are made.

    outer: where the loop stands; what its body reads of that becomes an `Input`.
    """

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.depth: int = 0 if outer is None else outer.depth + 1
        if self.depth > LOOP_DEPTH_MAX:
            raise TooLarge("loops within each other", self.depth, LOOP_DEPTH_MAX)
        self._operators: dict[str, Operator] = {}
        self._folded: set[str] = set()
        self._numbers: dict[str, int] = {}
        """For names that were wanted: the last number after them, from which on the next is sought."""
        self._imported: dict[str, Relation] = {}
        self._closed = False

    def fresh(self, wanted: str) -> str:
        """A name that no relation here has, in any case: `wanted`, perhaps with a number after it."""
        folded, number = wanted.casefold(), self._numbers.get(wanted.casefold(), 1)
        while (folded if number == 1 else f"{folded}_{number}") in self._folded:
            number += 1
        self._numbers[folded] = number
        return wanted if number == 1 else f"{wanted}_{number}"

    def add(self, operator: Operator) -> Relation:
        """The header of the relation that the operator makes; its name must be `fresh`."""
        if self._closed:
            raise InvalidWorkflow("the body of a WHILE is used after its end", operator.at)
        if len(self._operators) >= OPERATORS_MAX:
            raise TooLarge("operators", OPERATORS_MAX + 1, OPERATORS_MAX, operator.at)
        self._operators[operator.name] = operator
        self._folded.add(operator.name.casefold())
        return operator.relation

    def operator(self, relation: Relation) -> Operator:
        """What makes the relation."""
        return self._operators[relation.name]

    def relations(self) -> list[Relation]:
        """All relations that are made here."""
        return [operator.relation for operator in self._operators.values()]

    def imported(self, relation: Relation, at: Position | None = None) -> Relation:
        """The `Input` of this body for a relation from around the loop."""
        if relation.name not in self._imported:
            made = Input(name=self.fresh(relation.name), columns=relation.schema, at=at)
            self._imported[relation.name] = self.add(made)
        return self._imported[relation.name]

    def imports(self, relation: Relation) -> str | None:
        """The name of the `Input` for the relation from around the loop, None if there is none."""
        found = self._imported.get(relation.name)
        return None if found is None else found.name

    # ---- loops

    def loop(
        self,
        body: Scope,
        carried: Mapping[Relation, Relation],
        condition: LoopCondition | None,
        iterations_max: int = ITERATIONS_MAX,
        at: Position | None = None,
    ) -> dict[Relation, Relation]:
        """Add the loop with this body. {relation carried: what the loop leaves of it}.

        carried: {relation here: the relation of the body that is its next value}. What follows a relation gets its
        names of columns. condition: its relation is one of the body.
        """
        tested = [] if condition is None else [condition.relation]
        pairs = [
            Carried(body.imported(outside, at).name, body._following(outside, following, carried, tested, at).name)
            for outside, following in carried.items()
        ]
        needed = dict.fromkeys(tested + [name for pair in pairs for name in (pair.following, pair.input)])
        body._closed = True
        dag = body._job(needed, [name for name in needed if not isinstance(body._operators[name], Input)])
        if condition is not None:
            check_ends(body._operators, tuple(pairs), condition)
        outside_of = {inside.name: name for name, inside in body._imported.items()}
        read = tuple(self._operators[outside_of[name]].relation for name in dag.input_names)
        made = While(
            name=self.fresh("loop"),
            read=read,
            body=dag,
            carried=tuple(pairs),
            condition=condition,
            iterations_max=iterations_max,
            at=at,
        )
        self.add(made)
        return {
            outside: self.add(loop_result(self.fresh(outside.name), made, pair.input, at))
            for outside, pair in zip(carried, pairs, strict=True)
        }

    def _following(
        self,
        outside: Relation,
        following: Relation,
        carried: Mapping[Relation, Relation],
        tested: Collection[str],
        at: Position | None,
    ) -> Relation:
        """The relation that is the next value of the carried one, with the names of its columns."""
        wanted = outside.schema.names
        if following.schema.names == wanted or following.schema.types != outside.schema.types:
            return following  # As it is: if types differ, the WHILE says so.
        fixed = {*tested, *(one.name for one in carried.values() if one is not following)}
        changed = with_columns_named(self._operators, following.name, wanted, fixed)
        if changed is not None:
            self._operators = changed
            return changed[following.name].relation
        columns = tuple(Output.column(old, new) for old, new in zip(following.schema.names, wanted, strict=True))
        return self.add(Project(name=self.fresh(following.name), source=following, columns=columns, at=at))

    # ---- DAGs

    def _job(self, names: Collection[str], results: Collection[str]) -> Dag:
        """What is needed to make these relations, and they themselves."""
        every = Dag(tuple(self._operators.values()), tuple(self._operators))
        needed = every.ancestors(names) | set(names)
        return Dag(tuple(one for one in every if one.name in needed), tuple(results))

    def plain_names(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """New names for relations, of which some are to have certain ones: {relation: name}.

        Who has such a name so far takes that of the relation that gets it.
        """
        holders = {name.casefold(): name for name in self._operators}
        names: dict[str, str] = {}
        for relation, name in wanted.items():
            holder = holders.get(name.casefold())
            if relation != name and (holder is None or holder not in wanted):
                names[relation] = name
                names |= {} if holder is None else {holder: relation}
        return names

    def dag(
        self,
        kept: Collection[Relation],
        names: Mapping[str, str] | None = None,
        counters: Collection[Relation] = (),
    ) -> Dag:
        """The workflow. Its results are those relations of `kept` that nobody reads, but for tables.

        counters: what is a result only if there is no other. What is made for no result is left out. names: {relation:
        the name that it has instead}.
        """
        chosen = {relation.name for relation in kept}
        alive = self._alive(chosen - {relation.name for relation in counters}) or self._alive(chosen)
        if not alive:
            raise InvalidWorkflow("a workflow that computes nothing: it has no relation but tables")
        return _renamed(alive, names or {}, _unread(alive))

    def _alive(self, chosen: Collection[str]) -> dict[str, Operator]:
        alive = dict(self._operators)
        while dead := [name for name in _unread(alive) if name not in chosen or isinstance(alive[name], Scan)]:
            for name in dead:
                del alive[name]
        return alive

    def dag_of(self, results: Sequence[Relation], names: Mapping[str, str] | None = None) -> Dag:
        """The workflow that makes these relations; for names see `dag`."""
        asked = [relation.name for relation in results]
        job = self._job(asked, asked)
        return _renamed({one.name: one for one in job}, names or {}, asked)


def _unread(operators: Mapping[str, Operator]) -> list[str]:
    read = {name for operator in operators.values() for name in operator.inputs}
    return [name for name in operators if name not in read]


def _renamed(operators: Mapping[str, Operator], names: Mapping[str, str], results: Sequence[str]) -> Dag:
    made: dict[str, Operator] = {}
    for name, operator in operators.items():
        made[name] = operator.over(*(made[source].relation for source in operator.inputs)).named(names.get(name, name))
    return Dag(tuple(made.values()), tuple(made[name].name for name in results))
