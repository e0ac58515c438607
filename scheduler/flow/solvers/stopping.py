"""How one solver is told to stop while it runs in a thread without the GIL (paper 004, §5.2.4: the race)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

StopFlag = NDArray[np.int64]
"""Shape (1,): not 0 when the solver shall stop. A solver reads it at least every `POLL_STEPS` steps."""

POLL_STEPS = 1024


def stop_flag() -> StopFlag:
    """A flag that is not set; `flag[0] = 1` sets it, from any thread."""
    return np.zeros(1, np.int64)
