"""An executor that is started by hand and attaches to a node monitor: `python -m tests.faults.guest SOCKET`."""

import sys

from frontends.python.executor import PythonExecutor
from sparrow_py.executors.executor_connection import ExecutorConnection

APP = "guest"


def main() -> None:
    """Run calls, as the Python executor does, under an app of its own."""
    connection = ExecutorConnection(sys.argv[1])
    connection.hello(APP)
    PythonExecutor(connection).serve()


if __name__ == "__main__":
    main()
