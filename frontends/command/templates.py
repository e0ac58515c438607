"""Templates of commands: arguments with placeholders, which the values of an input fill.

The placeholders are those of GNU parallel:

- `{}` the value; `{.}` without its extension; `{/}` its file name; `{//}` its directory; `{/.}` its file name without
  extension. With several sources of values each stands for all of them. Where it is a whole argument it becomes an
  argument for each value; within one the values are joined by spaces.
- `{1}`, `{2.}`, `{3/}`, … the same of one source, counted from 1; `{-1}` is the last.
- `{#}` the number of the input, counted from 1.
- `{%}` the place on its node that runs the command, counted from 1, which is not known before: `Filled.slot_at` says
  where it belongs.

After a `$` only `{}` is a placeholder, as `${1}` and `${#}` are a shell's.

A value fills an argument, or part of one. No placeholder is looked for in values, and no shell reads them, unless the
template says so: one of a script (`Template.of_script`) hands the values to the shell as positional parameters, so that
the script's text never has them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparrow_py.errors import InvalidRequest

NUMBER, SLOT = "#", "%"
SHELL = ("sh", "-c")
_placeholder = re.compile(r"\{\}|(?<!\$)\{(?:[#%]|(?P<position>-?\d{1,9})?(?P<part>//|/\.|/|\.)?)\}")
_extension = re.compile(r"\.[^/.]+\Z")


def without_extension(value: str) -> str:
    """`a/b.tar` of `a/b.tar.gz`; a value that has no extension as it is."""
    return _extension.sub("", value, count=1)


def file_name(value: str) -> str:
    """What comes after the last slash."""
    return value.rpartition("/")[2]


def directory(value: str) -> str:
    """The directory of this path, as dirname(1) has it: `.` if it has no slash."""
    path = value.rstrip("/")
    return posixpath.dirname(path) or "." if path else value[:1] or "."


PARTS: dict[str, Callable[[str], str]] = {
    "": str,
    ".": without_extension,
    "/": file_name,
    "//": directory,
    "/.": lambda value: without_extension(file_name(value)),
}
"""What each placeholder takes of a value."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One placeholder: `what` is a key of `PARTS`, `NUMBER` or `SLOT`; `source` None stands for all sources."""

    what: str
    source: int | None = None

    def texts(self, number: int, values: Sequence[str]) -> list[str]:
        """What it stands for: a text for each value, or one. That of `SLOT` is empty."""
        if self.what == NUMBER:
            return [str(number)]
        if self.what == SLOT:
            return [""]
        take = PARTS[self.what]
        return [take(value) for value in (values if self.source is None else [values[self.source]])]

    def of_each(self, sources: int) -> list[Placeholder]:
        """Placeholders that stand for one text each, and together for the same."""
        if self.what not in PARTS or self.source is not None:
            return [self]
        return [Placeholder(self.what, source) for source in range(sources)]


Argument = tuple[str | Placeholder, ...]
"""Text and placeholders in turn."""
ALL: Argument = (Placeholder(""),)


class Filled(NamedTuple):
    """A command whose placeholders are filled.

    slot_at: where the number of the place belongs: indices into `argv`, with the number of characters before it.
    """

    argv: list[str]
    slot_at: list[tuple[int, int]]


class Template:
    """Arguments with placeholders, for inputs that have a value of each of so many sources."""

    def __init__(self, arguments: Iterable[Argument]) -> None:
        self._arguments = list(arguments)

    @classmethod
    def of_arguments(cls, argv: Sequence[str], sources: int, *, append: bool = True) -> Template:
        """The template of these arguments. If there is no placeholder in them and `append`, `{}` comes after them.

        `InvalidRequest` for a placeholder of a source that there is not.
        """
        arguments = [_parsed(argument, sources) for argument in argv]
        if append and not any(_placeholders(argument) for argument in arguments):
            arguments.append(ALL)
        return cls(arguments)

    @classmethod
    def of_script(cls, argv: Sequence[str], sources: int, *, append: bool = True) -> Template:
        """The template of a shell's script: these words, with spaces between them.

        In the script a reference to a positional parameter, in double quotes, takes the place of each placeholder.
        """
        parts = _parsed(" ".join(argv), sources)
        if append and not _placeholders(parts):
            parts = (*parts, " ", *ALL)
        parameters: list[Placeholder] = []
        script = "".join(part if isinstance(part, str) else _references(part, sources, parameters) for part in parts)
        return cls([(SHELL[0],), (SHELL[1],), (script,), (SHELL[0],), *((one,) for one in parameters)])

    def filled(self, number: int, values: Sequence[str]) -> Filled:
        """The command for the input of this number, with these values, one of each source."""
        argv: list[str] = []
        slot_at: list[tuple[int, int]] = []
        for argument in self._arguments:
            if len(argument) == 1 and isinstance(part := argument[0], Placeholder):
                if part.what == SLOT:
                    slot_at.append((len(argv), 0))
                argv += part.texts(number, values)
                continue
            text = ""
            for part in argument:
                if isinstance(part, str):
                    text += part
                    continue
                if part.what == SLOT:
                    slot_at.append((len(argv), len(text)))
                text += " ".join(part.texts(number, values))
            argv.append(text)
        return Filled(argv, slot_at)


def _placeholders(argument: Argument) -> list[Placeholder]:
    return [part for part in argument if isinstance(part, Placeholder)]


def _parsed(argument: str, sources: int) -> Argument:
    parts: list[str | Placeholder] = []
    end = 0
    for found in _placeholder.finditer(argument):
        parts += (argument[end : found.start()], _placeholder_of(found, sources))
        end = found.end()
    parts.append(argument[end:])
    return tuple(part for part in parts if part != "") or ("",)


def _placeholder_of(found: re.Match[str], sources: int) -> Placeholder:
    if (what := found[0][1:-1]) in (NUMBER, SLOT):
        return Placeholder(what)
    part = found["part"] or ""
    if found["position"] is None:
        return Placeholder(part)
    position = int(found["position"])
    if not 1 <= abs(position) <= sources:
        allowed = f"1 to {sources}, or -1 to -{sources}, as there are {sources} sources of values"
        if sources == 1:
            allowed = "1 or -1, as there is one source of values"
        raise InvalidRequest("placeholder", found[0], f"positions {allowed}")
    return Placeholder(part, position - 1 if position > 0 else position)


def _references(placeholder: Placeholder, sources: int, parameters: list[Placeholder]) -> str:
    """The script's text for this placeholder, whose values are to be added to the parameters unless they are there."""
    texts = []
    for one in placeholder.of_each(sources):
        if one not in parameters:
            parameters.append(one)
        texts.append(f'"${{{parameters.index(one) + 1}}}"')
    return " ".join(texts)
