"""What cloudpickle does, and functions keep the names of their files.

From 3.1.3 on cloudpickle takes the file's name out of a function that travels by value, so that equal functions of
different places have equal bytes. Then the traceback of a task that fails names no file and shows no line of source.
"""

from __future__ import annotations

import io
from collections import ChainMap
from types import CodeType
from typing import Any, ClassVar

import cloudpickle

PROTOCOL = 5

_reduce_code = cloudpickle.Pickler.dispatch_table[CodeType]


def _with_its_file(code: CodeType) -> tuple[type[CodeType], tuple[Any, ...]]:
    """What cloudpickle makes of it. The first text among the arguments of `CodeType` is the name of its file, whatever
    the interpreter's version. A new text each time: pickle would refer to an equal one before it, as chance has it."""
    make, arguments = _reduce_code(code)
    place = next(place for place, argument in enumerate(arguments) if isinstance(argument, str))
    return make, (*arguments[:place], "".join(code.co_filename), *arguments[place + 1 :])


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it publishes no types
    """cloudpickle's, for code with its file's name."""

    dispatch_table: ClassVar[ChainMap[Any, Any]] = ChainMap(
        {CodeType: _with_its_file}, cloudpickle.Pickler.dispatch_table
    )


def dumps(value: object) -> bytes:
    """The value, pickled; raises what pickling raises."""
    file = io.BytesIO()
    Pickler(file, protocol=PROTOCOL).dump(value)
    return file.getvalue()
