"""The user: a program that submits one job and says on standard output what it is told, a line of JSON each time.

`python -m benchmarks.faults_peers.user SYSTEM ADDRESS FAULT STARTS TASKS`. Times are of the monotonic clock, which all
processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks.faults_peers.faults import SLOTS, WORKERS
from benchmarks.faults_peers.systems import SYSTEMS

WARM_UP_TASKS = 2 * WORKERS * SLOTS


def say(event: str, **more: Any) -> None:
    """One line."""
    print(json.dumps({"event": event, "at_s": time.monotonic(), **more}), flush=True)


def described(error: BaseException | None) -> str | None:
    """The exception as the user reads it."""
    return None if error is None else f"{type(error).__name__}: {error}"


def main() -> None:
    """Submit, and follow the job to its end."""
    name, address, fault, starts, tasks = sys.argv[1:]
    told = SYSTEMS[name].outcomes(address, WARM_UP_TASKS, [(number, fault, starts) for number in range(int(tasks))])
    try:
        next(told)
        say("submitted")
        for outcome in told:
            assert outcome is not None
            say("outcome", task=outcome[0], error=described(outcome[1]))
        say("ended")
    except Exception as error:
        say("raised", error=described(error))
        raise


if __name__ == "__main__":
    main()
