"""Records what travels pickled between programs and workers, which may be of two versions: see `test_pickled_names`.

`python -m tests.support.record_pickles` writes `tests/data/pickles.json`: for each entry of `samples` the pickle in
base64. To record again is right only where the names in pickles are meant to change.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import cloudpickle

import sparrow_py
from sparrow_py import (
    TLS,
    BlobRef,
    CallOptions,
    CallStage,
    JobReport,
    JobSpec,
    LocalModule,
    NodeStatus,
    ResultLost,
    RetryPolicy,
    Speculation,
    StageSpec,
    TaskFailed,
    TaskReport,
    TaskSpec,
    TaskStatus,
)
from sparrow_py.exception_pickling import encode_exception

RECORDED = Path(__file__).parent.parent / "data" / "pickles.json"


def samples() -> dict[str, Callable[[], bytes]]:
    """How each sample is pickled: public names, objects of public classes, and exceptions of tasks."""
    report = TaskReport(0, TaskStatus.LOST, 1, "node", "", 0.0, None, None, None, None)
    objects = {
        "BlobRef": BlobRef("a" * 64, 1, ("127.0.0.1:1",)),
        "CallOptions": CallOptions(speculate=Speculation()),
        "CallStage": CallStage("stage", len),
        "JobReport": JobReport("job", [report]),
        "JobSpec": JobSpec(stages=[StageSpec([TaskSpec(b"payload")], name="stage")]),
        "LocalModule": LocalModule("module.py"),
        "NodeStatus": NodeStatus("node", 1),
        "RetryPolicy": RetryPolicy(),
        "TLS": TLS("cert", "key", "ca"),
    }
    exceptions: dict[str, BaseException] = {
        "a failed task": TaskFailed("failed"),
        "a lost result": ResultLost("lost"),
        "a group": ExceptionGroup("group", [TaskFailed("failed"), ValueError("value")]),
        "a class with an initializer of its own": subprocess.CalledProcessError(1, ["command"]),
        "a class with a way of its own": json.JSONDecodeError("message", "document", 0),
        "an attribute that stays at the worker": subprocess.CalledProcessError(1, ["command"], output=threading.Lock()),
    }
    return {
        **{f"the name {name}": _dump(getattr(sparrow_py, name)) for name in sparrow_py.__all__},
        **{f"an object of {name}": _dump(value) for name, value in objects.items()},
        **{f"the exception: {name}": _raised(error) for name, error in exceptions.items()},
    }


def _dump(value: object) -> Callable[[], bytes]:
    return lambda: bytes(cloudpickle.dumps(value, protocol=5))


def _raised(error: BaseException) -> Callable[[], bytes]:
    error.__cause__ = KeyError("cause")
    return lambda: encode_exception(error, "traceback")


if __name__ == "__main__":
    recorded = {name: base64.b64encode(pickled()).decode() for name, pickled in samples().items()}
    RECORDED.write_text(json.dumps(recorded, indent=0) + "\n")
