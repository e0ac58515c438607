"""The program of one library's user: `python -m benchmarks.peers.user MODULE:CLASS SLOTS SOCKET`.

It starts the library, runs the cases that it is asked for over a Unix socket, and ends when the socket is closed. With
`--once FILE` in place of the socket it gets one result, writes to the file when that was, and ends. It imports no other
system than its own.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from multiprocessing.connection import Client
from pathlib import Path

from benchmarks.peers.peer import Library
from benchmarks.peers.tasks import process_after, same

WARM_S = 0.2
WARM_ROUNDS = 2
NUMBER = 17


def main() -> None:
    """One library's life."""
    module, _, name = sys.argv[1].partition(":")
    library = getattr(importlib.import_module(module), name)()
    assert isinstance(library, Library)
    slots = int(sys.argv[2])
    if sys.argv[3] == "--once":
        once(library, slots, Path(sys.argv[4]))
    else:
        serve(library, slots, sys.argv[3])


def once(library: Library, slots: int, path: Path) -> None:
    """The clock is the machine's, which all processes share."""
    library.start(slots)
    assert library.result(library.submit(same, NUMBER)) == NUMBER
    path.write_text(str(time.monotonic()))
    library.stop()


def serve(library: Library, slots: int, path: str) -> None:
    """Answers are a `Ran`, or the text of an exception."""
    from benchmarks.peers.cases import IN_USER

    cases = {case.name: case for case in IN_USER}
    with Client(path) as parent:
        library.start(slots)
        try:
            for _ in range(WARM_ROUNDS):  # Workers that are started on demand are there.
                library.gather([library.submit(process_after, WARM_S) for _ in range(slots)])
            parent.send("ready")
            while True:
                try:
                    name, size = parent.recv()
                except EOFError:
                    return
                try:
                    parent.send(cases[name].run(library, size))
                except Exception as error:
                    traceback.print_exc()
                    parent.send(f"{type(error).__name__}: {error}")
        finally:
            library.stop()


if __name__ == "__main__":
    main()
