"""Which identifiers do Python sources use most? A job in three stages, each task a plain function.

    stage 1   count      one task per group of files, its counts split among the reducers
    stage 2   merge      one task per reducer, which owns the identifiers that hash to it
    stage 3   order      one task, which picks the most used of all

Python's own `hash` of a string differs from process to process; the split uses CRC-32.
"""

from __future__ import annotations

import heapq
import keyword
import os
import sysconfig
import tokenize
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SKIPPED_DIRECTORIES = frozenset({"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"})


class GroupCounts(NamedTuple):
    """What a task of stage 1 found: per reducer the counts of its identifiers."""

    partitions: list[dict[str, int]]
    total: int


class Answer(NamedTuple):
    """The result of the job: how many identifiers in all, how many distinct, and the most used."""

    total: int
    distinct: int
    top: list[tuple[str, int]]


def standard_library() -> Path:
    """Where the sources of this Python's standard library are."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(root: Path) -> list[Path]:
    """All Python files under `root` but tests and installed packages, in a fixed order."""
    files: list[Path] = []
    for directory, subdirectories, names in os.walk(root):
        subdirectories[:] = [name for name in subdirectories if name not in SKIPPED_DIRECTORIES]
        files += [Path(directory, name) for name in names if name.endswith(".py")]
    return sorted(path for path in files if path.is_file())


def balanced_groups(files: Iterable[Path], groups_max: int) -> list[list[str]]:
    """At most `groups_max` groups of about the same bytes, the heaviest first.

    Largest file first, each to the lightest group so far: no group is heavier than 4/3 of the
    best there is (Graham 1969).
    """
    sized = sorted(((path.stat().st_size, str(path)) for path in files), reverse=True)
    # Files count as a tie-break, so that empty ones are spread too.
    heap: list[tuple[int, int, int]] = [(0, 0, index) for index in range(min(groups_max, len(sized)))]
    groups: list[list[str]] = [[] for _ in heap]
    for size, path in sized:
        weight, files_in, index = heap[0]
        heapq.heapreplace(heap, (weight + size, files_in + 1, index))
        groups[index].append(path)
    weights = {index: weight for weight, _, index in heap}
    return [groups[index] for index in sorted(weights, key=lambda index: (-weights[index], index))]


def identifiers_in(path: str) -> Iterator[str]:
    """The identifiers of one file, in order; of a file that is no valid Python, those before the fault."""
    with Path(path).open("rb") as file:
        try:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                    yield token.string
        except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            return


def reducer_of(identifier: str, reducers: int) -> int:
    """Which of the reducers owns this identifier: the same in every process."""
    return zlib.crc32(identifier.encode("utf-8", "surrogatepass")) % reducers


def count(paths: Sequence[str], reducers: int) -> GroupCounts:
    """Stage 1: count the identifiers of a group of files."""
    counts: Counter[str] = Counter()
    for path in paths:
        counts.update(identifiers_in(path))
    partitions: list[dict[str, int]] = [{} for _ in range(reducers)]
    for identifier, number in counts.items():
        partitions[reducer_of(identifier, reducers)][identifier] = number
    return GroupCounts(partitions, counts.total())


def merge(partitions: Iterable[dict[str, int]]) -> dict[str, int]:
    """Stage 2: add up what every group counted for one reducer."""
    merged: Counter[str] = Counter()
    for partition in partitions:
        merged.update(partition)
    return dict(merged)


def order(merged: Iterable[dict[str, int]], top: int) -> Answer:
    """Stage 3: the `top` most used of all; among equals the alphabet decides."""
    counts = [item for partition in merged for item in partition.items()]
    best = heapq.nsmallest(top, counts, key=lambda item: (-item[1], item[0]))
    return Answer(sum(number for _, number in counts), len(counts), best)
