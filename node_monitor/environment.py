"""What executors are given of the node monitor's own environment: tasks see it, and may be somebody else's."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

OURS = "SPARROW_"
"""Variables of this name are the daemon's business, secrets above all, and are never passed on."""
USUAL = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHON*", "VIRTUAL_ENV", "*_NUM_THREADS", "MALLOC_*",
)  # fmt: skip
"""What programs need to find things, speak a language and keep to their cores."""
ALL = ("*",)


def passed_on(environment: Mapping[str, str], patterns: Sequence[str] | None) -> dict[str, str]:
    """The variables whose names match a pattern (`*` for any characters) or are usual; None: all of them."""
    wanted = ALL if patterns is None else (*USUAL, *patterns)
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(OURS) and any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)
    }
