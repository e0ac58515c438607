"""Notes of exceptions at a worker that say what is different there from the program's own process."""

from __future__ import annotations

import sys
from bdb import BdbQuit


def advised(error: BaseException) -> BaseException:
    """The exception, with a note if the user cannot know its cause from the program's process."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        error.add_note(
            f"a worker ({sys.executable}) has no module {error.name!r}: install it there, start node monitors in its "
            "directory or with --python-path, or ship it with cloudpickle.register_pickle_by_value"
        )
    elif isinstance(error, BdbQuit):
        error.add_note("workers have no terminal for a debugger: run the program on plane='inline'")
    return error
