"""Waiting in tests: for a condition, never for a time."""

import time
from collections.abc import Callable

TIMEOUT_S = 30.0
"""After which a test fails that waits for something."""
ANSWER_S = 3.0
"""How long a client tries that will not connect: always to the end, so not too long, and it must have heard why."""
POLL_S = 0.005


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str] = "",
    timeout_s: float = TIMEOUT_S,
    poll_s: float = POLL_S,
) -> None:
    """Return once the condition is true; `AssertionError` naming `what` if it does not become so.

    `what` may be a function that says, at the end of the time, what there is instead.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline_s:
            named = what() if callable(what) else what or condition
            raise AssertionError(f"waited {timeout_s:g} s in vain for {named}")
        time.sleep(poll_s)
