"""The dataflow framework: programs that loop over partitioned numpy arrays in memory.

docs/dataflow.md says how to use it.
"""

from frontends.dataflow.errors import (
    ExtraMissing,
    InvalidProgram,
    NotInRun,
    PartitionChanged,
    ProgramDiverged,
    ProtocolError,
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
    "NotInRun",
    "PartitionChanged",
    "ProgramDiverged",
    "ProtocolError",
    "SettingsConflict",
    "StageHandle",
    "StageReturned",
]
