"""The executor of the app `workflow`: `python -m frontends.workflow.executor`, started by a node monitor.

The process first hides from others, and only then imports its modules: until it is hidden, other processes of its
account can read its memory.
"""

from __future__ import annotations

import sys

from sparrow_py.processes.process_control import hide_from_others


def main() -> int:
    """Run until the node monitor goes away; the process's exit code."""
    try:
        # It reports for all users' jobs: no job may read its memory or use its socket.
        hide_from_others()
    except OSError as error:
        print(f"sparrow workflow executor: {error}", file=sys.stderr)
        return 1
    from frontends.workflow.warm_engines import script_runner

    return script_runner.serve(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
