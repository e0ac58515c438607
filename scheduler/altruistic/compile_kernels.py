"""`python -m scheduler.altruistic.compile_kernels PARENT`: compile what decisions need, and write down that it is done.
Ends with the process of this number, its parent."""

from __future__ import annotations

import sys

from scheduler.altruistic.compiled import note_compiled
from scheduler.altruistic.warm_up import warm_up
from sparrow_py.processes.process_control import SIGKILL, die_with_parent


def main() -> None:
    """The command."""
    die_with_parent(SIGKILL, int(sys.argv[1]))
    warm_up()
    note_compiled()


if __name__ == "__main__":
    main()
