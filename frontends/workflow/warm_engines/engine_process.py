"""The process that keeps an engine warm: `python -m frontends.workflow.warm_engines.engine_process DESCRIPTOR ENGINE`.

The executor of the app `workflow` starts it. As the executor does, it first hides from other processes of its account,
among which may be tasks of other users, and only then imports its modules.
"""

from __future__ import annotations

import os
import signal
import sys

from sparrow_py.processes.process_control import die_with_parent, hide_from_others


def main() -> int:
    """Run until the executor goes away; the process's exit code."""
    try:
        hide_from_others()
    except OSError as error:
        print(f"sparrow workflow engine: {error}", file=sys.stderr)
        return 1
    die_with_parent(signal.SIGKILL, os.getppid())
    from frontends.workflow.warm_engines.script_answers import serve_engine

    return serve_engine(int(sys.argv[1]), sys.argv[2])


if __name__ == "__main__":
    sys.exit(main())
