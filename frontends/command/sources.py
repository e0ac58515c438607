"""Sources of values, as GNU parallel has them, and the inputs that they make together.

`:::` begins a source of the words after it, `::::` a source for each file that the words name; `-` is standard input.
Inputs are all combinations of a value of each source, those of the last changing first. A source that begins with
`:::+` or `::::+` is linked to the one before: its first value goes with the first of that one, and so on, and the
values of the longer that are left over go unused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparrow_py.errors import InvalidRequest

WORDS, FILES = ":::", "::::"
LINKED = "+"
SEPARATORS = (WORDS, FILES, WORDS + LINKED, FILES + LINKED)
STANDARD_INPUT = "-"
SOURCES_MAX = 100
INPUTS_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """One source: its `values`, or the `file` that has them; and how errors name it."""

    name: str
    linked: bool
    values: tuple[str, ...] = ()
    file: str | None = None


def split_command(words: Sequence[str]) -> tuple[tuple[str, ...], list[Source]]:
    """The command, and the sources that come after it; `InvalidRequest` if there is something wrong with these."""
    starts = [index for index, word in enumerate(words) if word in SEPARATORS]
    sources: list[Source] = []
    for start, end in itertools.pairwise([*starts, len(words)]):
        sources += _sources(words[start], tuple(words[start + 1 : end]), len(sources))
        if len(sources) > SOURCES_MAX:
            raise InvalidRequest("sources", f"{len(sources)} of them", f"at most {SOURCES_MAX}")
    return tuple(words[: starts[0]] if starts else words), sources


def _sources(separator: str, words: tuple[str, ...], before: int) -> list[Source]:
    """The sources that this separator begins, `before` others."""
    linked = separator.endswith(LINKED)
    if linked and not before:
        raise InvalidRequest("source 1", separator, f"{WORDS} or {FILES}, as there is no source before to be linked to")
    if separator.startswith(FILES):
        if not words:
            raise InvalidRequest(f"source {before + 1} ({separator})", "no file", "the name of a file, or - for stdin")
        return [
            Source(f"source {number} ({separator} {file})", linked, file=file)
            for number, file in enumerate(words, before + 1)
        ]
    return [Source(f"source {before + 1} ({separator})", linked, words)]


def combined(sources: Sequence[Source], values: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The inputs of these sources, whose `values` are given in the same order: a value of each source for each input.

    `InvalidRequest` for a source without values, and if there are more than `INPUTS_MAX` inputs.
    """
    groups: list[list[Sequence[str]]] = []
    for source, of_source in zip(sources, values, strict=True):
        if not of_source:
            raise InvalidRequest(source.name, "no values", "at least one value")
        if source.linked:
            groups[-1].append(of_source)
        else:
            groups.append([of_source])
    count = math.prod(min(map(len, group)) for group in groups)
    if count > INPUTS_MAX:
        raise InvalidRequest("inputs", f"{count} combinations of values", f"at most {INPUTS_MAX}")
    rows = [list(zip(*group, strict=False)) for group in groups]
    return (tuple(itertools.chain.from_iterable(chosen)) for chosen in itertools.product(*rows))
