"""Errors of workflows.

SparrowError
├── InvalidRequest
│   ├── UnknownEngine         no engine of this name; offers the nearest
│   └── InvalidWorkflow       a workflow that cannot be; says where in its text
│       ├── InvalidSyntax     the text is not of the language
│       ├── NotSupported      a construct that is not supported; names it
│       ├── UnknownRelation   no relation of this name; offers the nearest
│       ├── UnknownColumn     no column of this name; offers the nearest
│       ├── OtherType         a column of a table whose type workflows do not have
│       ├── NameTaken         a name that is given twice
│       ├── TypeMismatch      an expression, or a pair of columns, whose types do not fit
│       ├── UndecidableType   a NULL that nothing gives a type
│       ├── EndlessLoop       a WHILE that cannot end
│       └── TooLarge          more of something than its maximum
├── IterationsExceeded        a WHILE whose condition still held after the most iterations that it may make
├── NoEngine                  no engine can run an operator of the workflow; says of each why not
├── TableMismatch             a table whose columns are not those that the workflow declares
├── Inexpressible             a job that an engine cannot do; says why
├── EngineMissing             an engine whose packages are not installed; says what to install
├── JobFailed                 the script of a job failed in its engine
└── ExtraMissing              a package of the extra `workflow` is not installed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from frontends.workflow.positions import Position, SourceText, pointed_out
from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidRequest, SparrowError, shown

WORKFLOW_FIELD = "workflow"
KNOWN_NAMES_SHOWN = 8
"""Names that an error lists if none of them is near the one that it is about."""


class InvalidWorkflow(InvalidRequest):
    """A workflow that cannot be.

    reason: without the place. at: where, None if it is not known (yet). source_line: that line of the text, if known.
    """

    def __init__(self, reason: str, at: Position | None = None, source_line: str = "") -> None:
        super().__init__(WORKFLOW_FIELD, None, "", reason)
        self.reason, self.at, self.source_line = reason, at, source_line

    def __str__(self) -> str:
        if self.at is None:
            return f"{WORKFLOW_FIELD}: {self.reason}"
        shown = pointed_out(self.source_line, self.at.column) if self.source_line else ""
        return f"{self.at}: {self.reason}" + (f"\n{shown}" if shown else "")

    @property
    def lines(self) -> tuple[str, ...]:
        """What is wrong, and if the place is known the source's line, printable, and a caret."""
        if self.at is None:
            return (str(self),)
        shown = pointed_out(self.source_line, self.at.column).split("\n") if self.source_line else []
        return (f"{self.at}: {self.reason}", *shown)

    def locate(self, at: Position | None, source: SourceText | None = None) -> None:
        """Say where, unless that is said already; with a source also show the line."""
        if self.at is None:
            self.at = at
        if source is not None and self.at is not None and self.at.file == source.file and not self.source_line:
            self.source_line = source.line(self.at.line)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.__dict__.copy())


def _restored(kind: type[InvalidWorkflow], attributes: dict[str, Any]) -> InvalidWorkflow:
    error = kind.__new__(kind)
    InvalidWorkflow.__init__(error, attributes["reason"])
    error.__dict__.update(attributes)
    return error


class InvalidSyntax(InvalidWorkflow):
    """The text is not of the language."""


class NotSupported(InvalidWorkflow):
    """The workflow uses `construct`, which is not supported."""

    def __init__(self, construct: str, at: Position | None = None) -> None:
        super().__init__(f"{construct} is not supported", at)
        self.construct = construct


class UnknownRelation(InvalidWorkflow):
    """There is no relation `name`."""

    def __init__(self, name: str, known: Iterable[str], at: Position | None = None) -> None:
        known = tuple(known)
        super().__init__(f"there is no relation {name}{_instead(name, known, 'relations')}", at)
        self.name, self.known = name, known


class UnknownColumn(InvalidWorkflow):
    """There is no column `name`."""

    def __init__(self, name: str, known: Iterable[str], at: Position | None = None) -> None:
        known = tuple(known)
        super().__init__(f"there is no column {name}{_instead(name, known, 'columns')}", at)
        self.name, self.known = name, known


class OtherType(InvalidWorkflow):
    """The workflow takes the column `name` of a table, whose type workflows do not have.

    type_: as Arrow calls it; allowed: the types there are. all_of: what takes it among all columns, empty if the
    workflow names it.
    """

    def __init__(self, name: str, type_: str, allowed: Iterable[str], all_of: str = "") -> None:
        types = ", ".join(allowed)
        self.name, self.type = name, type_
        taken = f"{all_of} takes all columns; name those that are wanted, without this one: " if all_of else ""
        super().__init__(f"{taken}the column {name} is {type_}; {types} are allowed")


class NameTaken(InvalidWorkflow):
    """A name that is given twice. what: "column" or "relation"; other: the earlier name, which may differ in case."""

    def __init__(self, what: str, name: str, other: str, at: Position | None = None) -> None:
        differ = (
            "" if name == other else f" (as {other}, and names that differ only in case are the same to some engines)"
        )
        super().__init__(f"there is a {what} {name} already{differ}; give one another name", at)
        self.what, self.name, self.other = what, name, other


class TypeMismatch(InvalidWorkflow):
    """An expression, or a pair of columns, whose types do not fit."""


class UndecidableType(TypeMismatch):
    """A NULL that nothing gives a type."""

    def __init__(self, text: str, at: Position | None = None) -> None:
        super().__init__(f"{text} has no type: write CAST(NULL AS …) with the type that is meant", at)


class EndlessLoop(InvalidWorkflow):
    """A WHILE that cannot end."""


class TooLarge(InvalidWorkflow):
    """More of something than its maximum."""

    def __init__(self, what: str, number: int, most: int, at: Position | None = None) -> None:
        super().__init__(f"{number:,} {what}; at most {most:,} are allowed", at)
        self.what, self.number, self.most = what, number, most


class IterationsExceeded(SparrowError):
    """The condition of the WHILE `loop` still held after `iterations`, the most that it may make."""

    def __init__(self, loop: str, iterations: int) -> None:
        super().__init__(
            f"the condition of the WHILE {loop} still holds after {iterations:,} iterations, the most that it may make"
        )
        self.loop, self.iterations = loop, iterations

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (self.loop, self.iterations)


class NoEngine(SparrowError):
    """No engine can run the operator `keyword` that makes `relation`. reasons: {engine: why it cannot}."""

    def __init__(self, keyword: str, relation: str, reasons: Mapping[str, str]) -> None:
        told = "; ".join(f"{engine}: {why}" for engine, why in reasons.items()) or "there are no engines"
        super().__init__(f"no engine can run {keyword} {relation} ({told})")
        self.keyword, self.relation, self.reasons = keyword, relation, dict(reasons)

    def __reduce__(self) -> tuple[type, tuple[str, str, dict[str, str]]]:
        return type(self), (self.keyword, self.relation, self.reasons)


class TableMismatch(SparrowError):
    """The table `table` does not have the columns that the workflow declares."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"table {table}: {reason}")
        self.table, self.reason = table, reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.table, self.reason)


class UnknownEngine(InvalidRequest):
    """There is no engine `name`."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            "engine",
            name,
            ", ".join(self.known),
            f"there is no engine {shown(name)}{_instead(name, self.known, 'engines')}",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.known)


class Inexpressible(SparrowError):
    """The engine cannot do a job, for this reason."""

    def __init__(self, engine: str, reason: str) -> None:
        super().__init__(f"the engine {engine} cannot run this job: {reason}")
        self.engine, self.reason = engine, reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.engine, self.reason)


class EngineMissing(SparrowError):
    """What the engine needs is not installed: packages, or another program, of which the text says how to get it."""

    def __init__(
        self, engine: str, packages: Iterable[str], extra: str = "workflow", program: str | None = None
    ) -> None:
        self.engine, self.packages, self.extra, self.program = engine, tuple(packages), extra, program
        needs = []
        if self.packages:
            needs.append(f"{', '.join(self.packages)}; the extra {extra} brings them: {install_command(extra)}")
        if program is not None:
            needs.append(program)
        super().__init__(f"the engine {engine} needs {'; and '.join(needs)}")

    def __reduce__(self) -> tuple[type, tuple[str, tuple[str, ...], str, str | None]]:
        return type(self), (self.engine, self.packages, self.extra, self.program)


class JobFailed(SparrowError):
    """The script of a job failed. error: the name of what it raised; details: the end of its traceback."""

    def __init__(self, engine: str, error: str, message: str, details: str = "") -> None:
        self.engine, self.error, self.message, self.details = engine, error, message, details
        super().__init__(f"the engine {engine} failed: {self.raised}" + (f"\n{details}" if details else ""))

    @property
    def raised(self) -> str:
        """The name of the exception, with its message if it had one."""
        return f"{self.error}: {self.message}" if self.message else self.error

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        return type(self), (self.engine, self.error, self.message, self.details)


class ExtraMissing(SparrowError):
    """A package that workflows need is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"the package {package} is not installed; the extra brings it: {install_command('workflow')}")
        self.package = package

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.package,)


def _instead(name: str, known: tuple[str, ...], what: str) -> str:
    """What a message offers instead of an unknown name."""
    by_folded = {one.casefold(): one for one in reversed(known)}
    near = difflib.get_close_matches(name.casefold(), list(by_folded), n=1)
    if near:
        return f"; is {by_folded[near[0]]} meant?"
    if not known:
        return f"; there are no {what}"
    more = f", … ({len(known)} in all)" if len(known) > KNOWN_NAMES_SHOWN else ""
    return f"; {what}: {', '.join(known[:KNOWN_NAMES_SHOWN])}{more}"
