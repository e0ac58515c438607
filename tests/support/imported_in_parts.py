"""Of several processes that collect the same tests each first imports files of its own.

On a fresh clone pytest compiles each module of tests when it is imported, and keeps the result beside the file.
Processes that import the same files in the same order would all compile all of them at the same time.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def import_a_part(worker: Mapping[str, Any], paths: Iterable[Path]) -> None:
    """Import this process's share of the files of tests. worker: what pytest-xdist has told the process.

    A module that cannot be imported is collected as any other, which says why.
    """
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(paths)[number::count]:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
