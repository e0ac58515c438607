"""A process that keeps an engine warm and runs scripts, one after the other: `python -m frontends.workflow.engines.host
NAME`.

It reads requests from its standard input, a JSON object a line, and writes an answer for each to what its standard
output was when it began. What scripts print goes to standard error.

    {"source": "…", "inputs": {"edges": "/data/edges.parquet"}, "outputs": {"ranks": "/data/ranks.parquet"}}
    {"wall_s": 0.12, "cpu_s": 0.2, "memory_bytes": 81000000}
    {"error": "JobFailed", "arguments": ["duckdb", "OutOfMemoryException", "…", "…"]}

The first line is written when the engine is warm: what the start took.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from frontends.workflow.engines import engine as engine_of
from frontends.workflow.engines.base import Engine
from frontends.workflow.engines.runs import run_script
from frontends.workflow.errors import IterationsExceeded, JobFailed
from sparrow_py.errors import SparrowError

END_S = 5.0
"""How long a process may take to end when its input ends; then it is killed."""
MESSAGE_CHARS_MAX = 20_000
"""Characters of each text of an error's answer."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a script took. wall_s, cpu_s: seconds; memory_bytes: the most that the process has had until then."""

    wall_s: float
    cpu_s: float
    memory_bytes: int


class EngineHost:
    """The process of an engine; not for several threads at once. threads: how many the engine may use."""

    def __init__(self, engine: Engine, threads: int) -> None:
        """Start it; returns when the engine is warm. `EngineMissing`, or `JobFailed` if it does not start."""
        engine.check_installed()
        self._engine = engine
        self._process = subprocess.Popen(
            [sys.executable, "-m", "frontends.workflow.engines.host", engine.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **engine.environment(threads)},
        )
        try:
            self.start = self._answer()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, source: str, inputs: Mapping[str, str | Path], outputs: Mapping[str, str | Path]) -> Ran:
        """Run a script. `IterationsExceeded`, or `JobFailed`, also if the process ends meanwhile."""
        request = {
            "source": source,
            "inputs": {name: str(path) for name, path in inputs.items()},
            "outputs": {name: str(path) for name, path in outputs.items()},
        }
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Ran:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            code = self._process.wait()
            raise JobFailed(self._engine.name, "ProcessEnded", f"its process ended with {code}")
        answer: dict[str, Any] = json.loads(line)
        if "error" not in answer:
            return Ran(**answer)
        if answer["error"] == IterationsExceeded.__name__:
            raise IterationsExceeded(*answer["arguments"])
        raise JobFailed(*answer["arguments"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process.stdout.close()

    def kill(self) -> None:
        """End the process at once, whatever it does; whoever waits in `run` has `JobFailed`."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


# ---- the process -----------------------------------------------------------------------------


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    begun = time.perf_counter()
    engine = engine_of(sys.argv[1])
    engine.warm_up()
    _write(answers, _taken(begun, 0.0))
    for line in sys.stdin:
        _write(answers, _served(engine.name, json.loads(line)))


def _served(engine: str, request: dict[str, Any]) -> dict[str, Any]:
    begun, cpu_before_s = time.perf_counter(), time.process_time()
    try:
        run_script(engine, request["source"], request["inputs"], request["outputs"])
    except IterationsExceeded as error:
        return {"error": IterationsExceeded.__name__, "arguments": [error.loop, error.iterations]}
    except JobFailed as error:
        texts = (error.engine, error.error, error.message, error.details)
        return {"error": JobFailed.__name__, "arguments": [text[-MESSAGE_CHARS_MAX:] for text in texts]}
    except SparrowError as error:
        return {"error": JobFailed.__name__, "arguments": [engine, type(error).__name__, str(error), ""]}
    return _taken(begun, cpu_before_s)


def _taken(begun: float, cpu_before_s: float) -> dict[str, Any]:
    return {
        "wall_s": time.perf_counter() - begun,
        "cpu_s": time.process_time() - cpu_before_s,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _write(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
