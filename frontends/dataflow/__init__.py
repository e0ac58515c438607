"""The dataflow framework: programs that loop over partitioned numpy arrays in memory.

docs/dataflow.md says how to use it.
"""

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
