"""The dataflow framework: programs that loop over partitioned numpy arrays in memory.

docs/dataflow.md says how to use it. What this module exports is loaded on first use: `sparrow --help` names options of
programs, and is not to import numpy for that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frontends.dataflow.errors import (
        ExtraMissing,
        InvalidProgram,
        LinkRefused,
        MemoryShort,
        MessageTooLarge,
        NotInRun,
        PartitionChanged,
        PlaintextRefused,
        ProgramDiverged,
        ProtocolError,
        RunLost,
        SettingsConflict,
        StageReturned,
    )
    from frontends.dataflow.handles import Dataset, StageHandle
    from frontends.dataflow.program import Dataflow

_HOME_OF = {"Dataflow": "program", "Dataset": "handles", "StageHandle": "handles"}
"""The modules of what is no error."""

__all__ = [
    "Dataflow",
    "Dataset",
    "ExtraMissing",
    "InvalidProgram",
    "LinkRefused",
    "MemoryShort",
    "MessageTooLarge",
    "NotInRun",
    "PartitionChanged",
    "PlaintextRefused",
    "ProgramDiverged",
    "ProtocolError",
    "RunLost",
    "SettingsConflict",
    "StageHandle",
    "StageReturned",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF.get(name, 'errors')}"), name)
    globals()[name] = value
    return value
