"""What `sparrow run` reads its inputs from: standard input and files, a value in each line or up to each NUL."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from frontends.command.sources import STANDARD_INPUT, Source, combined
from sparrow_py.errors import InvalidRequest

INPUT_BYTES_MAX = 1 << 30
"""Of standard input, and of each file."""


def inputs_of(sources: Sequence[Source], *, null: bool) -> Iterator[tuple[str, ...]]:
    """The inputs that these sources make together; `null`: values in files end with NUL. `InvalidRequest` if a source
    cannot be read, or has no values."""
    return combined(sources, [_values_of(source, null=null) for source in sources])


def lines_of_standard_input(*, null: bool) -> list[str]:
    """The values in standard input, without their ends."""
    if sys.stdin.isatty():
        click.echo("sparrow: reading the lines from the terminal; Ctrl-D ends them", err=True)
    return _values_in(sys.stdin.buffer.read(INPUT_BYTES_MAX + 1), "the input", null=null)


def _values_of(source: Source, *, null: bool) -> Sequence[str]:
    if source.file is None:
        return source.values
    if source.file == STANDARD_INPUT:
        return lines_of_standard_input(null=null)
    try:
        with Path(source.file).open("rb") as file:
            data = file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidRequest(source.name, source.file, f"a file that can be read ({error.strerror})") from None
    return _values_in(data, source.file, null=null)


def _values_in(data: bytes, name: str, *, null: bool) -> list[str]:
    """The values in `data`; `name` says where it comes from."""
    if len(data) > INPUT_BYTES_MAX:
        raise InvalidRequest(name, f"more than {INPUT_BYTES_MAX} bytes", f"at most {INPUT_BYTES_MAX} bytes")
    pieces = data.split(b"\0" if null else b"\n")
    if not pieces[-1]:
        pieces.pop()
    values = []
    for number, piece in enumerate(pieces, 1):
        try:
            values.append(piece.decode())
        except UnicodeDecodeError:
            what = "value" if null else "line"
            raise InvalidRequest(f"{what} {number} of {name}", piece, "UTF-8") from None
    return values
