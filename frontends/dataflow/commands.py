"""Messages of the planes `templates` and `central`, where a controller commands workers block by block.

Each has the epoch, as in `messages`. Tasks have numbers, from 0 on in the order of the program; what copies a value
between workers has numbers beyond (`planning.transfer_id`). A place is a partition of a dataset, (dataset, index).
"""

from __future__ import annotations

from typing import Any

import msgspec

NONE = -1
"""In place of the number of a template or patch: there is none."""

Parameters = tuple[tuple[int, dict[str, Any]], ...]
"""Position in the block, and parameters, of each call that has some."""
Spawned = tuple[int, int, int]
"""A task as the driver states it: position of its call in the block, stage, partition."""
Command = tuple[int, int, int, int, int]
"""A task as a worker is sent it: number, position of its call, stage, partition, position of the scatter or -1; or, in
place of the call, `SENDS` (the replicated dataset, the worker it is for, the tag) or `RECEIVES` (dataset, 0, tag)."""
SENDS, RECEIVES = -2, -1
Recorded = tuple[int, tuple[int, ...]]
"""A task of a worker's half: its number, and those of the same half that it waits for."""


# ---- the driver and the controller ------------------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=100):
    """Tasks of a block whose template the controller does not have, in the order of the program."""

    epoch: int
    block: int
    first_call: int
    tasks: list[Spawned]
    parameters: Parameters
    """Of the calls of these tasks."""
    ends: bool
    """Whether these are the last ones."""


class Invoke(msgspec.Struct, frozen=True, array_like=True, tag=101):
    """A block whose template the controller has."""

    epoch: int
    block: int
    first_call: int
    template: int
    parameters: Parameters


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=102):
    """The block is over everywhere."""

    epoch: int
    block: int
    value: bool
    """What its signal said."""
    template: int
    """The number by which it is invoked the next time."""


class Unknown(msgspec.Struct, frozen=True, array_like=True, tag=103):
    """The controller no longer has the template: the driver is to submit the block's tasks."""

    epoch: int
    block: int
    template: int


# ---- the controller to workers ----------------------------------------------------------------------------


class Placed(msgspec.Struct, frozen=True, array_like=True, tag=104):
    """Partitions of groups that are elsewhere from now on: (group, index, worker)."""

    epoch: int
    moved: list[tuple[int, int, int]]


class Install(msgspec.Struct, frozen=True, array_like=True, tag=105):
    """A worker's half of a template."""

    epoch: int
    template: int
    revision: int
    stages: tuple[int, ...]
    starts: tuple[int, ...]
    """The number of each call's first task."""
    tasks: list[Recorded]


class Edits(msgspec.Struct, frozen=True, array_like=True):
    """How a worker's half of one revision becomes that of the next."""

    drop: list[int]
    add: list[Recorded]
    replace: list[Recorded]


class Copies(msgspec.Struct, frozen=True, array_like=True):
    """A worker's share of a patch: values that it sends, (dataset, index, worker), and places that it gets."""

    sends: list[tuple[int, int, int]]
    gets: list[tuple[int, int]]


class Instantiate(msgspec.Struct, frozen=True, array_like=True, tag=106):
    """Execute a template once. Without one the worker does what the patch says, and no more."""

    epoch: int
    block: int
    first_call: int
    template: int
    revision: int
    patch: int
    """The patch that is to be in force first."""
    parameters: Parameters
    edits: Edits | None
    """What makes the worker's half that of this revision."""
    copies: Copies | None
    """The patch, the first time."""


class Dispatch(msgspec.Struct, frozen=True, array_like=True, tag=107):
    """Single tasks that are ready: a message a task, in one frame."""

    epoch: int
    block: int
    first_call: int
    commands: list[Command]
    parameters: Parameters


class Discard(msgspec.Struct, frozen=True, array_like=True, tag=108):
    """The template is not needed any more."""

    epoch: int
    template: int


class StorePlaces(msgspec.Struct, frozen=True, array_like=True, tag=109):
    """Report the partitions that are here, and these replicated datasets, as they are after a block (`Stored`)."""

    epoch: int
    block: int
    copies: tuple[int, ...]


# ---- workers ----------------------------------------------------------------------------------------------


class Finished(msgspec.Struct, frozen=True, array_like=True, tag=110):
    """To the controller: the worker's half of the block is done. The signal's value is with the worker that ran it."""

    epoch: int
    block: int
    value: bool | None


class Completed(msgspec.Struct, frozen=True, array_like=True, tag=111):
    """To the controller: single tasks are done."""

    epoch: int
    block: int
    numbers: list[int]
    value: bool | None


class Copy(msgspec.Struct, frozen=True, array_like=True, tag=112):
    """To another worker: a value that a task, or a patch (tag `NONE`), sends."""

    epoch: int
    block: int
    tag: int
    dataset: int
    index: int
    value: Any


Ordered = Placed | Install | Instantiate | Dispatch | Discard | StorePlaces
"""What the controller sends to workers."""
Reported = Finished | Completed
Requested = Submit | Invoke
Commanded = Ordered | Reported | Requested | Answer | Unknown | Copy
