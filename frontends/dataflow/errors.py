"""Errors of programs over partitioned arrays.

SparrowError
├── InvalidRequest
│   └── InvalidProgram        a dataset, a stage or a program that cannot be; names field, value, what is allowed
│       └── SettingsConflict  a program and the command that runs it state different values
├── NotInRun                  a stage was called outside `Dataflow.run`
├── PartitionChanged          a stage gave an array another shape or dtype
├── StageReturned             a stage returned a value; stages write into their arrays in place
├── ProgramDiverged           two workers are at different places of the program; names the stage of each
├── RunLost                   workers or the controller were lost too often, or could not start
├── ProtocolError             a message between workers that no rule allows
├── MemoryShort               less memory is free than an array or a message needs
├── LinkRefused               a peer cannot be dialled, or one of the two does not accept the other
├── PlaintextRefused          a link between machines would not be encrypted, though the cluster's are
├── MessageTooLarge           a message that no frame holds
└── ExtraMissing              a package of the extra `dataflow` is not installed

An exception of a stage is raised as itself, with a note that names stage and partition.
"""

from __future__ import annotations

from typing import Any

from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidRequest, SparrowError


class InvalidProgram(InvalidRequest):
    """A dataset, a stage or a program that cannot be."""


class SettingsConflict(InvalidProgram):
    """A program and `sparrow dataflow run` state different values."""

    def __init__(self, field: str, stated: object, option: str, asked: object) -> None:
        super().__init__(
            field,
            stated,
            "",
            f"{field}: the program states {stated!r}, and the command {option} {asked}; state it in one place, the "
            "same in both, or leave it out of the program",
        )
        self.stated, self.option, self.asked = stated, option, asked

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.stated, self.option, self.asked)


class NotInRun(SparrowError):
    """A stage was called outside a run."""

    def __init__(self, stage: str) -> None:
        super().__init__(
            f"stage {stage} was called outside a run of its Dataflow: call it in a function, and give that to "
            "Dataflow.run; nor may a stage call a stage"
        )
        self.stage = stage

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.stage,)


class PartitionChanged(SparrowError):
    """A stage gave the array that it was handed another shape or dtype."""

    def __init__(self, dataset: str, partition: int, was: str, became: str, writers: str) -> None:
        super().__init__(
            f"partition {partition} of {dataset} was {was} and became {became}: stages write into their arrays in "
            f"place and leave shape and dtype; stages that wrote it: {writers}"
        )
        self.dataset, self.partition, self.was, self.became, self.writers = dataset, partition, was, became, writers

    def __reduce__(self) -> tuple[type, tuple[str, int, str, str, str]]:
        return type(self), (self.dataset, self.partition, self.was, self.became, self.writers)


class StageReturned(SparrowError):
    """A stage returned a value."""

    def __init__(self, type_name: str) -> None:
        super().__init__(
            f"the stage returned a value of type {type_name}: stages write into their arrays in place and return None"
        )
        self.type_name = type_name

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.type_name,)


class ProgramDiverged(SparrowError):
    """Two workers have called different stages, so the program does not depend on signals alone."""

    def __init__(self, call: int, here: str, worker: int, there: str) -> None:
        if here == there:
            found = f"between the signal before and call {call}, {here}, worker {worker} called other stages"
        else:
            found = f"stage {here} is called here, stage {there} at worker {worker}"
        super().__init__(
            f"the program diverged by call {call}: {found}; a program may branch on signals alone, not on time, chance "
            "or the machine"
        )
        self.call, self.here, self.worker, self.there = call, here, worker, there

    def __reduce__(self) -> tuple[type, tuple[int, str, int, str]]:
        return type(self), (self.call, self.here, self.worker, self.there)


class RunLost(SparrowError):
    """A run that could not be brought to its end, by no fault of its stages as far as is known."""


class ProtocolError(SparrowError):
    """A message between workers that no rule allows: a bug of ours, or a peer that is none."""


class MemoryShort(SparrowError, MemoryError):
    """Less memory is free than is asked for."""

    def __init__(self, purpose: str, asked_bytes: int, free_bytes: int) -> None:
        super().__init__(
            f"{purpose} needs {asked_bytes:,} bytes of memory, and {free_bytes:,} are free; more partitions, or "
            "workers on more machines, make each smaller"
        )
        self.purpose, self.asked_bytes, self.free_bytes = purpose, asked_bytes, free_bytes

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return type(self), (self.purpose, self.asked_bytes, self.free_bytes)


class LinkRefused(SparrowError):
    """A peer cannot be dialled, or one of the two does not accept the other."""

    def __init__(self, peer: int, address: str, reason: str) -> None:
        super().__init__(f"no link to {peer_name(peer)} at {address}: {reason}")
        self.peer, self.address, self.reason = peer, address, reason

    def __reduce__(self) -> tuple[type, tuple[int, str, str]]:
        return type(self), (self.peer, self.address, self.reason)


class PlaintextRefused(LinkRefused):
    """A link between machines would not be encrypted, though those of the cluster are."""


class MessageTooLarge(SparrowError):
    """A message that no frame holds. Arrays do not count: they travel beside it."""

    def __init__(self, kind: str, size_bytes: int, bytes_max: int) -> None:
        super().__init__(
            f"a message {kind} has {size_bytes:,} bytes beside its large arrays; at most {bytes_max:,} are allowed"
        )
        self.kind, self.size_bytes, self.bytes_max = kind, size_bytes, bytes_max

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return type(self), (self.kind, self.size_bytes, self.bytes_max)


class ExtraMissing(SparrowError):
    """A package that programs over arrays need is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"the package {package} is not installed; the extra brings it: {install_command('dataflow')}")
        self.package = package

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.package,)


def peer_name(peer: int) -> str:
    """A peer of a program, for people: by its number."""
    return {-2: "the driver", -1: "the controller"}.get(peer, f"worker {peer}")
