"""What was measured: JSON lines, one for each run, with its settings, profile, commit, date and machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from simulator import results_file
from sparrow_py.errors import InvalidOption


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one run. figures: its numbers by name; names of groups stand before a dot, as in `by_user.user0.p50`.

    why_invalid: why it is no measurement; empty if it is one. cores, memory_gb: of the machine. took_s: wall time.
    samples: columns of numbers by name, for what is computed of several runs.
    """

    run: dict[str, Any]
    figures: dict[str, float]
    commit: str
    date: str
    cores: int
    memory_gb: int
    took_s: float
    why_invalid: str = ""
    samples: dict[str, list[float]] = {}


Results = dict[str, Result]
"""By the key of the run."""


def key(run: dict[str, Any]) -> str:
    """What tells a run from others: all its settings, in order of their names."""
    return msgspec.json.encode(run, order="sorted").decode()


def read(path: Path) -> Results:
    """The results in a file; where a run has several, its last. A file that is not there has none. A last line that was
    not finished is left out."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidOption("results", str(path), f"a file that can be read ({error.strerror})") from None
    found: Results = {}
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        try:
            result = msgspec.json.decode(line, type=Result)
        except msgspec.MsgspecError as error:
            raise InvalidOption("results", f"{path}:{number}", f"a result ({error})") from None
        found[key(result.run)] = result
    return found


class Writer:
    """Adds results to a file that nobody else writes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def add(self, result: Result) -> None:
        """Append it, so that it stays whatever ends the program."""
        self._file.write(msgspec.json.encode(result) + b"\n")
        self._file.flush()


@contextmanager
def writer(path: Path) -> Iterator[Writer]:
    """Holds the file; at the end it is in order, and without what was measured again."""
    with results_file.opened(path) as file:
        known = read(path)
        _rewrite(file, known.values())
        try:
            yield Writer(file)
        finally:
            _rewrite(file, read(path).values())


def _rewrite(file: IO[bytes], results: Iterable[Result]) -> None:
    """Put these in place of the file's content, which has them all already."""
    ordered = sorted(results, key=lambda result: key(result.run))
    content = b"".join(msgspec.json.encode(result) + b"\n" for result in ordered)
    file.seek(0)
    if file.read() != content:
        file.truncate(0)
        file.write(content)
        file.flush()
