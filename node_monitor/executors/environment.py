"""What executors are given of the node monitor's own environment: tasks see it, and may be somebody else's."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

OURS = "SPARROW_"
"""Variables of this name are the daemon's business, secrets above all, and are never passed on."""
USUAL = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHON*", "VIRTUAL_ENV", "*_NUM_THREADS", "*_MAX_THREADS", "VECLIB_MAXIMUM_THREADS", "MALLOC_*",
)  # fmt: skip
"""What programs need to find things, speak a language and keep to their cores."""
ALL = ("*",)
THREADS = "OMP_NUM_THREADS"
"""How many threads OpenMP starts in a process."""
THREADS_AS_OPENMP = (
    "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip
"""Of libraries that do as OpenMP is told where theirs is not set."""
THREADS_OF_THEIR_OWN = ("VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS")
"""Of libraries that heed nothing else."""


def passed_on(environment: Mapping[str, str], patterns: Sequence[str] | None) -> dict[str, str]:
    """The variables whose names match a pattern (`*` for any characters) or are usual; None: all of them."""
    wanted = ALL if patterns is None else (*USUAL, *patterns)
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(OURS) and any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)
    }


def one_thread_per_slot(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, in which numerical libraries start one thread in each executor where it does not say how many.

    They start one for each core otherwise, and every slot's worker does: that is cores × slots threads. The libraries
    read it when they are imported, so it has to be there when an executor starts. Whoever sets a variable has it as it
    is, and where that is OpenMP's, the libraries that follow OpenMP do.
    """
    followers = () if THREADS in environment else (THREADS, *THREADS_AS_OPENMP)
    return {**dict.fromkeys((*followers, *THREADS_OF_THEIR_OWN), "1"), **environment}
