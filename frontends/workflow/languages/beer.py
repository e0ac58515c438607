"""BEER, the language of the thesis (§3.2.1): relational operators, and WHILE. `beer.lark` has its grammar.

    CREATE RELATION purchases WITH COLUMNS (INTEGER, INTEGER, STRING),
    SELECT [purchases_0, purchases_1] FROM (purchases) WHERE [(purchases_2 = 'USA')] AS american,
    AGG [american_1, +] FROM (american) GROUP BY [american_0] AS spenders

| BEER | makes |
|---|---|
| `CREATE RELATION t WITH COLUMNS (…)` | the table `t`: types of all its columns, or names and types of some |
| `SELECT [columns] FROM (r) WHERE [condition]` | of the rows that meet the condition these columns |
| `PROJECT [columns] FROM (r)` | these columns |
| `SUM`, `SUB`, `MUL`, `DIV` `[a, b] FROM (r)` | `r` with a + b, … instead of the first column that is named |
| `AGG [columns, +]`, `COUNT [column]`, `MIN [columns]`, `MAX [columns]` | a row, or with `GROUP BY [columns]` groups |
| `(r) JOIN (s) ON r_0, r_1 AND s_0, s_1` | columns of r, then those of s that are no keys |
| `(r) CROSS JOIN (s)`, `UNION`, `UNION ALL`, `INTERSECT`, `DIFFERENCE` | |
| `SORT INC` or `SORT DEC` `ON [columns] FROM (r)`, `DISTINCT FROM (r)` | |
| `TOP [n] FROM (r)`, `TOP [n] DEC ON [columns] FROM (r)` | the least, or the greatest by these columns |
| `WHILE [condition] DO ( … )` | DO may be left out |
| `UDF path name ON r, s`, `BLACK BOX engine path ON r, s` | columns as after `WITH COLUMNS`, which comes last |

Each but the loop ends with `AS name`. What reads one relation takes `WHERE [condition]`: rows that do not meet it are
left out first. `FROM (…)` may hold an operator instead of a name. `relation_N` is the column N, from 0, of the relation
that is read. Names that are no identifiers stand in backquotes.

A name that is given again means the newer relation from there on. In a WHILE, names from before it that are given again
are carried from iteration to iteration, and other names end with it. Its condition tests one relation: before each
iteration if that is carried; after each if only the body makes it.

Results are the relations that nobody reads. What a condition alone reads, as a counter, is one only if no other is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from frontends.workflow.errors import (
    EndlessLoop,
    InvalidWorkflow,
    NameTaken,
    NotSupported,
    TooLarge,
    TypeMismatch,
    UnknownColumn,
    UnknownRelation,
)
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Arithmetic,
    BlackBox,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Function,
    Intersect,
    Join,
    LoopCondition,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Sort,
    SortKey,
    Top,
    Udf,
    Union,
    check_keys_fit,
    free_name,
    joined_columns,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Column, Schema, Type
from frontends.workflow.languages.conditions import (
    ARITHMETIC,
    ColumnOf,
    columns_named,
    condition,
    name_in,
    term,
    text_in,
)
from frontends.workflow.languages.parsing import (
    NODE_LEVELS_MAX,
    Grammar,
    Node,
    Token,
    Tree,
    part,
    parts,
    position,
    subtrees,
    tokens,
)
from frontends.workflow.languages.scopes import Scope
from frontends.workflow.positions import Position, SourceText

_GRAMMAR = Grammar("beer.lark")


def parse(text: str, tables: Mapping[str, Schema] | None = None, file: str = "<beer>") -> Dag:
    """The workflow; `InvalidWorkflow` with file, line, column and a caret if there is none.

    tables: the columns of the tables there are; their names are those of the relations then, and types that CREATE
    RELATION states are checked. Without them it is believed, and the columns of a table `t` are called `t_0`, `t_1`, ….
    """
    source = SourceText(text, file)
    try:
        return _Compiler(_GRAMMAR.parse(source), tables, file).dag()
    except InvalidWorkflow as error:
        error.locate(None, source)
        raise


class _Block:
    """Names of relations at one place of the text. outer: those around the WHILE in whose body it is."""

    def __init__(self, outer: _Block | None = None) -> None:
        self.outer = outer
        self.scope: Scope = Scope(outer.scope if outer else None)
        self.bound: dict[str, Relation] = {}

    def find(self, name: str) -> Relation | None:
        """The relation of this name, which the body imports if need be; None if there is none."""
        if name in self.bound or self.outer is None:
            return self.bound.get(name)
        outside = self.outer.find(name)
        return None if outside is None else self.scope.imported(outside)

    def bind(self, name: str, relation: Relation, at: Position) -> None:
        for other in self.names():
            if other != name and other.casefold() == name.casefold():
                raise NameTaken("relation", name, other, at)
        self.bound[name] = relation

    def names(self) -> list[str]:
        """The names that can be read here."""
        return [*self.bound, *(self.outer.names() if self.outer else ())]


@dataclass(frozen=True, slots=True)
class _Read:
    """A relation that an operator reads, and what the text calls it."""

    name: str
    relation: Relation


class _Compiler:
    def __init__(self, tree: Node, tables: Mapping[str, Schema] | None, file: str) -> None:
        self._tree, self._tables, self._file = tree, tables, file
        self._levels = 0
        self._counters: list[Relation] = []
        self._made_at: dict[str, list[Position]] = {}
        for node in subtrees(tree):
            if node.data in _OPERATORS or node.data == "create":
                token = tokens(node, "NAME")[-1]
                self._made_at.setdefault(name_in(token), []).append(self._at(token))

    def dag(self) -> Dag:
        block = _Block()
        self._statements(self._tree, block)
        latest = {relation.name: name for name, relation in block.bound.items()}
        return block.scope.dag(list(block.bound.values()), block.scope.plain_names(latest), self._counters)

    def _statements(self, node: Node, block: _Block) -> None:
        for child in node.children:
            assert isinstance(child, Tree)
            if child.data == "create":
                self._create(child, block)
            elif child.data == "loop":
                self._loop(child, block)
            else:
                self._operator(child, block)

    def _at(self, node: Node | Token) -> Position:
        return position(node, self._file)

    # ---- names

    def _relation(self, token: Token, block: _Block, making: str = "") -> _Read:
        """What the name means. making: the name of the relation that is made from it."""
        name = name_in(token)
        found = block.find(name)
        if found is not None:
            return _Read(name, found)
        at = self._at(token)
        if name == making:
            raise InvalidWorkflow(f"{name} would be made from itself: there is no relation {name} before it", at)
        made = next(iter(self._made_at.get(name, ())), None)
        if made is None:
            raise UnknownRelation(name, block.names(), at)
        if (made.line, made.column) < (at.line, at.column):
            raise InvalidWorkflow(f"{name} is made in line {made.line}, in a WHILE, with which it ends", at)
        raise InvalidWorkflow(
            f"{name} is made only in line {made.line}; relations are read after they are made, without recursion", at
        )

    def _place(self, token: Token, read: _Read) -> int:
        """Which column of the relation the name means, from 0."""
        name = name_in(token)
        relation, _, number = name.rpartition("_")
        size = len(read.relation.schema)
        if relation == read.name and re.fullmatch("0|[1-9][0-9]{0,5}", number) and int(number) < size:
            return int(number)
        known = [f"{read.name}_{place}" for place in range(size)]
        raise UnknownColumn(name, known, self._at(token))

    def _column(self, token: Token, read: _Read) -> str:
        return read.relation.schema.columns[self._place(token, read)].name

    def _column_of(self, read: _Read) -> ColumnOf:
        return lambda token: self._column(token, read)

    def _columns(self, node: Node | None, read: _Read) -> list[str]:
        """The columns that the children `column` of the node name."""
        return [self._column(token, read) for token in self._column_tokens(node)]

    @staticmethod
    def _column_tokens(node: Node | None) -> list[Token]:
        """The names in the children `column` of the node."""
        return [tokens(one, "NAME")[0] for one in (parts(node, "column") if node is not None else ())]

    @contextlib.contextmanager
    def _located(self, node: Node | Token) -> Iterator[None]:
        """Errors of the `with` block stand here, unless they say better."""
        try:
            yield
        except InvalidWorkflow as error:
            error.locate(self._at(node))
            raise

    # ---- statements

    def _create(self, node: Node, block: _Block) -> None:
        (token,), at = tokens(node, "NAME"), self._at(node)
        name = name_in(token)
        if block.outer is not None:
            raise NotSupported("CREATE RELATION in a WHILE", at)
        if name in block.bound:
            raise NameTaken("relation", name, name, self._at(token))
        schema = self._declared(part(node, "declared"), name, self._table(token))
        scan = Scan(name=block.scope.fresh(name), table=name, columns=schema, at=at)
        block.bind(name, block.scope.add(scan), self._at(token))

    def _table(self, token: Token) -> Schema | None:
        """The columns of the table, None if no tables are known."""
        if self._tables is None:
            return None
        if name_in(token) not in self._tables:
            raise UnknownRelation(name_in(token), self._tables, self._at(token))
        return self._tables[name_in(token)]

    def _declared(self, node: Node | None, relation: str, table: Schema | None = None) -> Schema:
        """The columns that are declared, by default with the names that the table has at their places."""
        assert node is not None
        declarations = parts(node, "declaration")
        named = [bool(tokens(one, "NAME")) for one in declarations]
        if table is not None and not any(named):
            try:
                table.check_whole("CREATE RELATION without names of columns")
            except InvalidWorkflow as error:
                error.locate(self._at(node))
                raise
        if table is not None and not any(named) and len(declarations) != len(table):
            raise TypeMismatch(
                f"{len(declarations)} columns are declared, and the table {relation} has {len(table)}: "
                f"{', '.join(f'{one.name} {one.type.value}' for one in table)}; name the columns if not all are meant",
                self._at(node),
            )
        columns = []
        for place, declaration in enumerate(declarations):
            try:
                columns.append(
                    self._declaration(declaration, place, relation, table if not any(named) else None, table)
                )
            except InvalidWorkflow as error:
                error.locate(self._at(declaration))
                raise
        try:
            return Schema(tuple(columns))
        except InvalidWorkflow as error:
            error.locate(self._at(node))
            raise

    def _declaration(
        self, node: Node, place: int, relation: str, by_place: Schema | None, table: Schema | None
    ) -> Column:
        type_ = Type(str(parts(node, "type")[0].children[0]))
        named = tokens(node, "NAME")
        name = name_in(named[0]) if named else by_place.names[place] if by_place else f"{relation}_{place}"
        if table is not None:
            there = table.column(name).type
            if there is not type_ and not (there is Type.INTEGER and type_ is Type.DOUBLE):
                raise TypeMismatch(f"{name} of the table {relation} is {there.value}, not {type_.value}")
        return Column(name, type_)

    def _operator(self, node: Node, block: _Block) -> _Read:
        """Add what the node says, and give the relation its name."""
        token, at = tokens(node, "NAME")[-1], self._at(node)
        self._levels += 1
        if self._levels > NODE_LEVELS_MAX:
            raise TooLarge("operators within each other", self._levels, NODE_LEVELS_MAX, at)
        try:
            relation = _OPERATORS[node.data](self, node, block, name_in(token))
        except InvalidWorkflow as error:
            error.locate(at)
            raise
        self._levels -= 1
        block.bind(name_in(token), relation, self._at(token))
        return _Read(name_in(token), relation)

    # ---- loops

    def _loop(self, node: Node, block: _Block) -> None:
        at = self._at(node)
        test, inside = part(node, "condition"), part(node, "body")
        assert test is not None and inside is not None
        try:
            body = _Block(block)
            self._statements(inside, body)
            changed = {name: outside for name in body.bound if (outside := block.find(name)) is not None}
            if not changed:
                raise EndlessLoop("a WHILE whose body gives no relation from before it a new value")
            carried = {outside: body.bound[name] for name, outside in changed.items()}
            goes_on = self._goes_on(test, block, body)
            left = block.scope.loop(body.scope, carried, goes_on, at=at)
        except InvalidWorkflow as error:
            error.locate(at)
            raise
        for name, outside in changed.items():
            block.bind(name, left[outside], at)
            if body.scope.imports(outside) == goes_on.relation:
                self._counters.append(left[outside])

    def _goes_on(self, node: Node, block: _Block, body: _Block) -> LoopCondition:
        """The condition of the loop, on the relation that its columns name."""
        named = columns_named(node)
        if not named:
            raise EndlessLoop("the condition of a WHILE names no column, so nothing changes it", self._at(node))
        relations = [name_in(token).rpartition("_")[0] or name_in(token) for token in named]
        for token, relation in zip(named, relations, strict=True):
            if relation != relations[0]:
                raise NotSupported(
                    f"a condition of a WHILE on two relations, {relations[0]} and {relation},", self._at(token)
                )
        name, at = relations[0], self._at(named[0])
        outside = block.find(name)
        if outside is None and name not in body.bound:
            raise UnknownRelation(name, body.names(), at)
        if outside is not None and name not in body.bound:
            raise EndlessLoop(f"the WHILE tests {name}, which its body does not change", at)
        tested = body.bound[name] if outside is None else body.scope.imported(outside)
        test = condition(node, self._column_of(_Read(name, tested)), tested.schema, self._file)
        return LoopCondition(tested.name, test, tested_first=outside is not None)

    # ---- operators of one relation

    def _source(self, node: Node, block: _Block, making: str, number: int = 0) -> _Read:
        """The relation in parentheses."""
        (inner,) = parts(node, "source")[number].children
        if isinstance(inner, Token):
            return self._relation(inner, block, making)
        assert isinstance(inner, Tree)
        return self._operator(inner, block)

    def _rows(self, node: Node, block: _Block, name: str) -> _Read:
        """The relation after FROM, of it the rows that meet WHERE."""
        return self._filtered(node, block, self._source(node, block, name), f"{name}_where")

    def _filtered(self, node: Node, block: _Block, read: _Read, name: str) -> _Read:
        where = part(node, "where")
        if where is None:
            return read
        (test,) = parts(where, "condition")
        select = Select(
            name=block.scope.fresh(name),
            source=read.relation,
            condition=condition(test, self._column_of(read), read.relation.schema, self._file),
            at=self._at(where),
        )
        return _Read(read.name, block.scope.add(select))

    def select(self, node: Node, block: _Block, name: str) -> Relation:
        """One operator if all columns are selected, in their order."""
        listed = part(node, "columns")
        read = self._source(node, block, name)
        every = self._columns(listed, read) == list(read.relation.schema.names)
        if every and part(node, "where") is not None:
            return self._filtered(node, block, read, name).relation
        return self._projected(listed, self._filtered(node, block, read, f"{name}_where"), node, block, name)

    def project(self, node: Node, block: _Block, name: str) -> Relation:
        return self._projected(part(node, "columns"), self._rows(node, block, name), node, block, name)

    def _projected(self, listed: Node | None, read: _Read, node: Node, block: _Block, name: str) -> Relation:
        outputs: dict[str, Output] = {}
        for column in self._columns(listed, read):
            name_of = free_name(column, outputs) if column in outputs else column
            outputs[name_of] = Output.column(column, name_of)
        made = Project(
            name=block.scope.fresh(name), source=read.relation, columns=tuple(outputs.values()), at=self._at(node)
        )
        return block.scope.add(made)

    def arithmetic(self, node: Node, block: _Block, name: str) -> Relation:
        read = self._rows(node, block, name)
        operands = [one for one in node.children if isinstance(one, Tree) and one.data in ("column", "number")]
        first = next((one for one in operands if one.data == "column"), None)
        (token,) = tokens(node, "ARITHMETIC")
        if first is None:
            raise InvalidWorkflow(
                f"{token} of two numbers; one of them is a column, which it overwrites", self._at(token)
            )
        left, right = (term(one, self._column_of(read), self._file) for one in operands)
        made = Arithmetic(
            name=block.scope.fresh(name),
            source=read.relation,
            column=self._column(tokens(first, "NAME")[0], read),
            value=Scalar(ARITHMETIC[str(token)](this=left, expression=right)),
            at=self._at(node),
        )
        return block.scope.add(made)

    def fold(self, node: Node, block: _Block, name: str) -> Relation:
        (token,) = tokens(node, "FOLD")
        if token != "+":
            raise NotSupported(f"AGG with {token}", self._at(token))
        return self._aggregated(node, node, Function.SUM, block, name)

    def count(self, node: Node, block: _Block, name: str) -> Relation:
        return self._aggregated(node, node, Function.COUNT, block, name)

    def extreme(self, node: Node, block: _Block, name: str) -> Relation:
        (token,) = tokens(node, "EXTREME")
        function = Function.MIN if token.startswith("MIN") else Function.MAX
        return self._aggregated(node, part(node, "columns"), function, block, name)

    def _aggregated(self, node: Node, columns: Node | None, function: Function, block: _Block, name: str) -> Relation:
        read, group = self._rows(node, block, name), part(node, "group")
        keys = self._columns(part(group, "columns") if group else None, read)
        taken, aggregations = list(keys), []
        for token in self._column_tokens(columns):
            column = self._column(token, read)
            named = free_name("count" if function is Function.COUNT else column, taken)
            taken.append(named)
            aggregations.append(Aggregation(named, function, column))
            with self._located(token):
                aggregations[-1].type_in(read.relation.schema)
        made = Aggregate(
            name=block.scope.fresh(name),
            source=read.relation,
            keys=tuple(keys),
            aggregations=tuple(aggregations),
            at=self._at(node),
        )
        return block.scope.add(made)

    def _order(self, node: Node, read: _Read) -> tuple[SortKey, ...]:
        descending = "DEC" in tokens(node, "DIRECTION")
        return tuple(SortKey(column, descending) for column in self._columns(part(node, "columns"), read))

    def sort(self, node: Node, block: _Block, name: str) -> Relation:
        read = self._rows(node, block, name)
        keys = self._order(node, read)
        made = Sort(name=block.scope.fresh(name), source=read.relation, keys=keys, at=self._at(node))
        return block.scope.add(made)

    def top(self, node: Node, block: _Block, name: str) -> Relation:
        read = self._rows(node, block, name)
        (number,) = tokens(node, "NUMBER")
        if not re.fullmatch("[0-9]{1,10}", number, re.ASCII):
            raise InvalidWorkflow(f"TOP [{number}]: a whole number of rows is expected", self._at(number))
        keys = self._order(node, read)
        made = Top(name=block.scope.fresh(name), source=read.relation, count=int(number), keys=keys, at=self._at(node))
        return block.scope.add(made)

    def distinct(self, node: Node, block: _Block, name: str) -> Relation:
        read = self._rows(node, block, name)
        return block.scope.add(Distinct(name=block.scope.fresh(name), source=read.relation, at=self._at(node)))

    # ---- operators of two relations

    def _pair(self, node: Node, block: _Block, name: str) -> tuple[_Read, _Read]:
        return self._source(node, block, name, 0), self._source(node, block, name, 1)

    def join(self, node: Node, block: _Block, name: str) -> Relation:
        left, right = self._pair(node, block, name)
        keys = [self._columns(one, read) for one, read in zip(parts(node, "keys"), (left, right), strict=True)]
        if len(keys[0]) != len(keys[1]):
            raise InvalidWorkflow(
                f"a JOIN of {len(keys[0])} columns with {len(keys[1])}; each on the left has one on the right",
                self._at(parts(node, "keys")[0]),
            )
        for one, other, token in zip(*keys, self._column_tokens(parts(node, "keys")[1]), strict=True):
            with self._located(token):
                check_keys_fit(left.relation.schema.column(one), right.relation.schema.column(other))
        made = Join(
            name=block.scope.fresh(name),
            left=left.relation,
            right=right.relation,
            on=tuple(zip(*keys, strict=True)),
            columns=joined_columns(left.relation, right.relation, without=keys[1], renamed=_clear(left, right)),
            at=self._at(node),
        )
        return block.scope.add(made)

    def cross_join(self, node: Node, block: _Block, name: str) -> Relation:
        left, right = self._pair(node, block, name)
        made = CrossJoin(
            name=block.scope.fresh(name),
            left=left.relation,
            right=right.relation,
            columns=joined_columns(left.relation, right.relation, renamed=_clear(left, right)),
            at=self._at(node),
        )
        return block.scope.add(made)

    def union(self, node: Node, block: _Block, name: str) -> Relation:
        left, right = self._pair(node, block, name)
        made = Union(
            name=block.scope.fresh(name),
            left=left.relation,
            right=right.relation,
            all_rows=bool(tokens(node, "ALL")),
            at=self._at(node),
        )
        return block.scope.add(made)

    def intersect(self, node: Node, block: _Block, name: str) -> Relation:
        left, right = self._pair(node, block, name)
        made = Intersect(name=block.scope.fresh(name), left=left.relation, right=right.relation, at=self._at(node))
        return block.scope.add(made)

    def difference(self, node: Node, block: _Block, name: str) -> Relation:
        left, right = self._pair(node, block, name)
        made = Difference(name=block.scope.fresh(name), left=left.relation, right=right.relation, at=self._at(node))
        return block.scope.add(made)

    # ---- code of users and engines

    def _inputs(self, node: Node, block: _Block, name: str) -> tuple[Relation, ...]:
        listed = part(node, "read")
        return tuple(
            self._relation(token, block, name).relation for token in (tokens(listed, "NAME") if listed else ())
        )

    def udf(self, node: Node, block: _Block, name: str) -> Relation:
        function = name_in(tokens(node, "NAME")[0])
        made = Udf(
            name=block.scope.fresh(name),
            read=self._inputs(node, block, name),
            columns=self._declared(part(node, "declared"), name),
            function=f"{_code(node)}:{function}",
            at=self._at(node),
        )
        return block.scope.add(made)

    def black_box(self, node: Node, block: _Block, name: str) -> Relation:
        made = BlackBox(
            name=block.scope.fresh(name),
            read=self._inputs(node, block, name),
            columns=self._declared(part(node, "declared"), name),
            engine=name_in(tokens(node, "NAME")[0]),
            code=_code(node),
            at=self._at(node),
        )
        return block.scope.add(made)


def _code(node: Node) -> str:
    (token,) = tokens(node, "PATH", "STRING")
    return str(token) if token.type == "PATH" else text_in(token)


def _clear(left: _Read, right: _Read) -> dict[str, str]:
    """Names for the columns of the right side that the left side has, too."""
    taken = [*left.relation.schema.names, *right.relation.schema.names]
    names: dict[str, str] = {}
    folded = {name.casefold() for name in left.relation.schema.names}
    for name in right.relation.schema.names:
        if name.casefold() in folded:
            names[name] = free_name(name, taken)
            taken.append(names[name])
    return names


_OPERATORS: dict[str, Callable[[_Compiler, Node, _Block, str], Relation]] = {
    "select": _Compiler.select,
    "project": _Compiler.project,
    "arithmetic": _Compiler.arithmetic,
    "fold": _Compiler.fold,
    "extreme": _Compiler.extreme,
    "count": _Compiler.count,
    "sort": _Compiler.sort,
    "top": _Compiler.top,
    "distinct": _Compiler.distinct,
    "join": _Compiler.join,
    "cross_join": _Compiler.cross_join,
    "union": _Compiler.union,
    "intersect": _Compiler.intersect,
    "difference": _Compiler.difference,
    "udf": _Compiler.udf,
    "black_box": _Compiler.black_box,
}
