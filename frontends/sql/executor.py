"""The sql executor: `python -m frontends.sql.executor`, started by a node monitor.

The process first hides from others, and only then imports its modules, which takes long: until it is hidden, other
processes of its account can read its memory.
"""

from __future__ import annotations

import sys

from sparrow_py.processes.process_control import hide_from_others


def main() -> int:
    """Run until the node monitor goes away; the process's exit code."""
    try:
        # This process holds the data sets of all users: no task may read its memory or use its socket.
        hide_from_others()
    except OSError as error:
        print(f"sparrow sql executor: {error}", file=sys.stderr)
        return 1
    from frontends.sql import fragment_runner

    return fragment_runner.serve(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
