"""What is different at a worker from the program's own process, as exceptions say it there."""

from __future__ import annotations

import sys
from bdb import BdbQuit
from typing import NoReturn

from frontends.dataflow.errors import InvalidProgram

NO_TERMINAL = "workers have no terminal for a debugger: run the program with plane='inline'"


def refuse_breakpoint(*_: object, **__: object) -> NoReturn:
    """In the place of `sys.breakpointhook`: a prompt would stand where nobody can answer."""
    raise InvalidProgram("breakpoint", None, "", f"breakpoint() was called at a worker, and {NO_TERMINAL}")


def advised(error: BaseException) -> BaseException:
    """The exception, with a note if the user cannot know its cause from the program's process."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        error.add_note(
            f"a worker ({sys.executable}) has no module {error.name!r}: install it there, start node monitors in its "
            "directory or with --python-path, or ship it with cloudpickle.register_pickle_by_value"
        )
    elif isinstance(error, BdbQuit):
        error.add_note(NO_TERMINAL)
    return error
