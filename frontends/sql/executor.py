"""The sql executor: `python -m frontends.sql.executor`, started by a node monitor.

It hides before all else, and only then imports what it works with: until it is hidden, other processes of its account
can get into it, and those imports take long.
"""

from __future__ import annotations

import sys

from sparrow_py.processes.process_control import hide_from_others


def main() -> int:
    """Run until the node monitor goes away; the process's exit code."""
    try:
        # It holds all users' data sets: their tasks have no business in it, nor in its socket.
        hide_from_others()
    except OSError as error:
        print(f"sparrow sql executor: {error}", file=sys.stderr)
        return 1
    from frontends.sql import fragment_runner

    return fragment_runner.serve(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
