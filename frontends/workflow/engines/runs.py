"""Runs the script of a job in this process, which keeps an engine warm."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from frontends.workflow.errors import IterationsExceeded, JobFailed
from sparrow_py.errors import SparrowError

TRACEBACK_CHARS_MAX = 4_000
"""Characters of a failed script's traceback that are kept: its end."""

COMPILED_MAX = 16
"""Scripts whose code a process keeps: a workflow that runs again has the same ones; compiling takes milliseconds."""

Run = Callable[[dict[str, str], dict[str, str]], None]


def run_script(engine: str, source: str, inputs: Mapping[str, str | Path], outputs: Mapping[str, str | Path]) -> None:
    """Run the script's `run`; `IterationsExceeded` or `JobFailed` if it raises."""
    try:
        run = loaded(source)
        run(
            {name: str(path) for name, path in inputs.items()},
            {name: str(path) for name, path in outputs.items()},
        )
    except SparrowError:
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # Engines in Rust panic with what is no Exception.
        if type(error).__name__ == "IterationsExceeded":
            raise IterationsExceeded(*error.args) from None
        details = traceback.format_exc()[-TRACEBACK_CHARS_MAX:]
        raise JobFailed(engine, type(error).__name__, str(error), details) from error


def loaded(source: str) -> Run:
    """The script's `run`."""
    namespace: dict[str, Any] = {"__name__": "workflow_job"}
    exec(_compiled(source), namespace)
    run: Run = namespace["run"]
    return run


@functools.lru_cache(maxsize=COMPILED_MAX)
def _compiled(source: str) -> CodeType:
    return compile(source, "<job>", "exec")
