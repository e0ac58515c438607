"""What sqlglot says of a text that does not parse."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """The first error of a text.

    line, column: of the last character of `token`, which is at fault, from 1; None if it is not known.
    """

    description: str
    line: int | None = None
    column: int | None = None
    token: str = ""

    @classmethod
    def of(cls, error: Exception) -> SyntaxProblem:
        """Of an exception that sqlglot raised, without terminal colours and line breaks."""
        found = getattr(error, "errors", None)
        if not found or not isinstance(found[0], dict):
            return cls(" ".join(str(error).split()))
        first = found[0]
        description = str(first.get("description"))
        if "<class" in description:  # It names a class of sqlglot's that lacks a part.
            description = "something is missing"
        return cls(description, first.get("line"), first.get("col"), str(first.get("highlight") or ""))

    def __str__(self) -> str:
        return self.description if self.line is None else f"line {self.line}, column {self.column}: {self.description}"
