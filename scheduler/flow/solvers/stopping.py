"""How one solver is told to stop while it runs in a thread without the GIL (paper 004, §5.2.4: the race).

It may also be told how many steps it has: then equal runs stop at the same place, on whatever machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.problem import StoppedError

StopFlag = NDArray[np.int64]
"""Shape (1,) or (2,): first, not 0 when the solver shall stop; second, after how many steps it shall stop by itself.
A solver looks at least every `POLL_STEPS` steps. Relaxation and cost scaling count their steps, the others do not."""

POLL_STEPS = 1024
POLL_ARCS = 1 << 16
"""The same where a step is an arc that is looked at in passing: some tenths of a millisecond."""

TOLD = "the solver was told to stop"


def refuse_to_go_on(stop: StopFlag | None) -> None:
    """`StoppedError` if the flag is set: between the steps that prepare a solve."""
    if stop is not None and stop[0] != 0:
        raise StoppedError(TOLD)


def stop_flag(steps_max: int | None = None) -> StopFlag:
    """A flag that is not set; `flag[0] = 1` sets it, from any thread."""
    return np.array([0] if steps_max is None else [0, steps_max], np.int64)
