"""The text of intermediate representation, as `printing.py` writes it, back to an equal DAG.

Positions are those in this text. White space, line breaks among it, is of no account between the parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from frontends.workflow.errors import InvalidSyntax, InvalidWorkflow, TooLarge, UnknownRelation
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Arithmetic,
    BlackBox,
    Carried,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Function,
    Input,
    Intersect,
    Join,
    JoinKind,
    JoinOutput,
    LoopCondition,
    LoopResult,
    Operator,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Side,
    Sort,
    SortKey,
    Top,
    Udf,
    Union,
    Values,
    While,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Column, Schema, Type
from frontends.workflow.positions import Position, SourceText

TEXT_CHARS_MAX = 10_000_000
"""Characters of a DAG's text."""
LOOP_DEPTH_READ_MAX = 10
"""Loops within loops that are read; the DAG allows fewer, and says so better."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<name>[a-z_][a-z0-9_]* | "(?:[^"\n]|"")+")
  | (?P<word>[A-Z]+)
  | (?P<number>-?[0-9]{1,20})
  | (?P<text>'(?:[^']|'')*')
  | (?P<scalar>\{(?:[^'"{}]|'(?:[^']|'')*'|"(?:[^"]|"")*")*\})
  | (?P<mark>[(),=])
    """,
    re.VERBOSE,
)
_END = "the end of the text"
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


def read(text: str, file: str = "<ir>") -> Dag:
    """The DAG of this text; `InvalidWorkflow` with the place if it is none."""
    source = SourceText(text, file)
    try:
        if len(text) > TEXT_CHARS_MAX:
            raise TooLarge("characters of a DAG's text", len(text), TEXT_CHARS_MAX)
        reader = _Reader(source)
        dag = reader.dag()
        reader.take("end")
        return dag
    except InvalidWorkflow as error:
        error.locate(None, source)
        raise


class _Reader:
    """Reads one text from the front to the end."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._tokens = _tokens(source)
        self._next = 0
        self._depth = 0
        self._scopes: list[dict[str, Operator]] = []

    # ---- tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _at(self) -> Position:
        return self._source.position(self._token.offset)

    def _fail(self, wanted: str) -> InvalidSyntax:
        return InvalidSyntax(f"{wanted} is expected, and {self._token.text} found", self._at())

    def take(self, kind: str) -> str:
        """The text of the next token, which must be of this kind."""
        if self._token.kind != kind:
            raise self._fail({"end": _END, "mark": "a mark"}.get(kind, f"a {kind}"))
        self._next += 1
        return self._tokens[self._next - 1].text

    def _accept(self, text: str) -> bool:
        """Take the next token if it is this word or mark."""
        found = self._token.kind in ("word", "mark") and self._token.text == text
        self._next += found
        return found

    def _expect(self, *texts: str) -> None:
        for text in texts:
            if not self._accept(text):
                raise self._fail(text)

    def _name(self) -> str:
        text = self.take("name")
        return text[1:-1].replace('""', '"') if text.startswith('"') else text

    def _text(self) -> str:
        return self.take("text")[1:-1].replace("''", "'")

    def _scalar(self) -> Scalar:
        at = self._at()
        return Scalar(self.take("scalar")[1:-1], at, Position(at.line, at.column + 1, at.file))

    def _number(self) -> int:
        return int(self.take("number"))

    def _list(self, item: Callable[[], Item], opening: bool = True) -> tuple[Item, ...]:
        """Items in parentheses with commas between them; perhaps none."""
        if opening:
            self._expect("(")
        if self._accept(")"):
            return ()
        items = [item()]
        while not self._accept(")"):
            self._expect(",")
            items.append(item())
        return tuple(items)

    def _word_of(self, words: type[Type] | type[Side] | type[JoinKind]) -> str:
        allowed = [one.value for one in words]
        if self._token.text not in allowed:
            raise self._fail(f"one of {', '.join(allowed)}")
        return self.take("word")

    # ---- parts of operators

    def _relation(self) -> Relation:
        at, name = self._at(), self._name()
        known = self._scopes[-1]
        if name not in known:
            raise UnknownRelation(name, known, at)
        return known[name].relation

    def _pair_of_relations(self) -> tuple[Relation, Relation]:
        left = self._relation()
        self._expect(",")
        return left, self._relation()

    def _schema(self) -> Schema:
        return Schema(self._list(lambda: Column(self._name(), Type(self._word_of(Type)))))

    def _names(self) -> tuple[str, ...]:
        return self._list(self._name)

    def _equality(self) -> tuple[str, str]:
        left = self._name()
        self._expect("=")
        return left, self._name()

    def _output(self) -> Output:
        name = self._name()
        self._expect("=")
        return Output(name, self._scalar())

    def _join_output(self) -> JoinOutput:
        name = self._name()
        self._expect("=")
        return JoinOutput(name, Side(self._word_of(Side)), self._name())

    def _join_outputs(self) -> tuple[JoinOutput, ...]:
        self._expect("TO")
        return self._list(self._join_output)

    def _aggregation(self) -> Aggregation:
        name = self._name()
        self._expect("=")
        word = self.take("word")
        if word == "COUNT" and self._accept("DISTINCT"):
            word = "COUNT DISTINCT"
        if word not in [one.value for one in Function]:
            self._next -= 1
            raise self._fail(f"one of {', '.join(one.value for one in Function)}")
        return Aggregation(name, Function(word), self._name() if self._token.kind == "name" else None)

    def _sort_key(self) -> SortKey:
        return SortKey(self._name(), self._accept("DESC"))

    # ---- operators

    def dag(self) -> Dag:
        """Operators and results, up to what follows them."""
        self._scopes.append({})
        operators: list[Operator] = []
        while not self._accept("RESULTS"):
            operator = self._operator()
            operators.append(operator)
            self._scopes[-1][operator.name] = operator
        at, results = self._at(), [self._name()]
        while self._accept(","):
            results.append(self._name())
        self._scopes.pop()
        try:
            return Dag(tuple(operators), tuple(results))
        except InvalidWorkflow as error:
            error.locate(at)
            raise

    def _operator(self) -> Operator:
        at, name = self._at(), self._name()
        self._expect("=")
        keyword_at, keyword = self._at(), self.take("word")
        if keyword in ("CROSS", "BLACK", "LOOP"):
            keyword += f" {self.take('word')}"
        rule = _RULES.get(keyword)
        if rule is None:
            raise InvalidSyntax(f"{keyword} is no operator", keyword_at)
        try:
            return rule(self, name, at)
        except InvalidWorkflow as error:
            error.locate(at)
            raise

    def scan(self, name: str, at: Position) -> Operator:
        return Scan(name=name, table=self._text(), columns=self._schema(), at=at)

    def values(self, name: str, at: Position) -> Operator:
        columns = self._schema()
        self._expect("ROWS")
        rows = self._list(lambda: self._list(self._scalar))
        return Values(name=name, columns=columns, rows=rows, at=at)

    def input(self, name: str, at: Position) -> Operator:
        return Input(name=name, columns=self._schema(), at=at)

    def select(self, name: str, at: Position) -> Operator:
        source = self._relation()
        self._expect("WHERE")
        return Select(name=name, source=source, condition=self._scalar(), at=at)

    def project(self, name: str, at: Position) -> Operator:
        source = self._relation()
        self._expect("TO")
        return Project(name=name, source=source, columns=self._list(self._output), at=at)

    def arithmetic(self, name: str, at: Position) -> Operator:
        source = self._relation()
        self._expect("SET")
        output = self._output()
        return Arithmetic(name=name, source=source, column=output.name, value=output.value, at=at)

    def join(self, name: str, at: Position) -> Operator:
        kind = JoinKind(self._word_of(JoinKind))
        left, right = self._pair_of_relations()
        self._expect("ON")
        on = self._list(self._equality)
        return Join(name=name, left=left, right=right, on=on, kind=kind, columns=self._join_outputs(), at=at)

    def cross_join(self, name: str, at: Position) -> Operator:
        left, right = self._pair_of_relations()
        return CrossJoin(name=name, left=left, right=right, columns=self._join_outputs(), at=at)

    def union(self, name: str, at: Position) -> Operator:
        all_rows = self._accept("ALL")
        left, right = self._pair_of_relations()
        return Union(name=name, left=left, right=right, all_rows=all_rows, at=at)

    def intersect(self, name: str, at: Position) -> Operator:
        left, right = self._pair_of_relations()
        return Intersect(name=name, left=left, right=right, at=at)

    def difference(self, name: str, at: Position) -> Operator:
        left, right = self._pair_of_relations()
        return Difference(name=name, left=left, right=right, at=at)

    def distinct(self, name: str, at: Position) -> Operator:
        return Distinct(name=name, source=self._relation(), at=at)

    def aggregate(self, name: str, at: Position) -> Operator:
        source = self._relation()
        keys = self._names() if self._accept("BY") else ()
        self._expect("TO")
        aggregations = self._list(self._aggregation)
        return Aggregate(name=name, source=source, keys=keys, aggregations=aggregations, at=at)

    def sort(self, name: str, at: Position) -> Operator:
        source = self._relation()
        self._expect("BY")
        return Sort(name=name, source=source, keys=self._list(self._sort_key), at=at)

    def top(self, name: str, at: Position) -> Operator:
        count, source = self._number(), self._relation()
        keys = self._list(self._sort_key) if self._accept("BY") else ()
        return Top(name=name, source=source, count=count, keys=keys, at=at)

    def udf(self, name: str, at: Position) -> Operator:
        function, read = self._text(), self._list(self._relation)
        self._expect("TO")
        return Udf(name=name, function=function, read=read, columns=self._schema(), at=at)

    def black_box(self, name: str, at: Position) -> Operator:
        engine, code, read = self._text(), self._text(), self._list(self._relation)
        self._expect("TO")
        return BlackBox(name=name, engine=engine, code=code, read=read, columns=self._schema(), at=at)

    def loop_result(self, name: str, at: Position) -> Operator:
        source = self._relation()
        self._expect("OF")
        return LoopResult(name=name, source=source, carried=self._name(), columns=self._schema(), at=at)

    def loop(self, name: str, at: Position) -> Operator:
        read = self._list(self._relation)
        self._expect("CARRY")
        carried = self._list(lambda: Carried(*self._equality()))
        condition = None
        if self._accept("TEST"):
            first = self._accept("FIRST")
            condition = LoopCondition(self._name(), self._scalar(), first)
        self._expect("AT", "MOST")
        most = self._number()
        self._expect("DO")
        body = self._body()
        return While(name=name, read=read, body=body, carried=carried, condition=condition, iterations_max=most, at=at)

    def _body(self) -> Dag:
        self._depth += 1
        if self._depth > LOOP_DEPTH_READ_MAX:
            raise TooLarge("loops within each other", self._depth, LOOP_DEPTH_READ_MAX)
        body = self.dag()
        self._expect("END")
        self._depth -= 1
        return body


_RULES: dict[str, Callable[[_Reader, str, Position], Operator]] = {
    Scan.keyword: _Reader.scan,
    Values.keyword: _Reader.values,
    Input.keyword: _Reader.input,
    Select.keyword: _Reader.select,
    Project.keyword: _Reader.project,
    Arithmetic.keyword: _Reader.arithmetic,
    Join.keyword: _Reader.join,
    CrossJoin.keyword: _Reader.cross_join,
    Union.keyword: _Reader.union,
    Intersect.keyword: _Reader.intersect,
    Difference.keyword: _Reader.difference,
    Distinct.keyword: _Reader.distinct,
    Aggregate.keyword: _Reader.aggregate,
    Sort.keyword: _Reader.sort,
    Top.keyword: _Reader.top,
    Udf.keyword: _Reader.udf,
    BlackBox.keyword: _Reader.black_box,
    LoopResult.keyword: _Reader.loop_result,
    While.keyword: _Reader.loop,
}


def _tokens(source: SourceText) -> list[_Token]:
    found: list[_Token] = []
    offset = 0
    while offset < len(source.text):
        match = _TOKEN.match(source.text, offset)
        if match is None:
            raise InvalidSyntax(f"{source.text[offset]!r} begins nothing that may stand here", source.position(offset))
        if match.lastgroup != "space":
            found.append(_Token(str(match.lastgroup), match[0], offset))
        offset = match.end()
    return [*found, _Token("end", _END, offset)]
