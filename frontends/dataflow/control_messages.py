"""Messages of workers, the controller and the driver about the program as a whole.

`messages` has those of one epoch of one run. An epoch begins with `Enter`: it says which run of the program is called,
from which block on, who holds which partitions, and where each value comes from. Peers have numbers: workers from 0 on,
which are never used again, the controller and the driver below.
"""

from __future__ import annotations

from typing import Any

import msgspec

CONTROLLER, DRIVER = -1, -2
"""Numbers of peers that are no workers."""
LOCAL = "local"
"""The plane whose workers spawn their tasks themselves; those of others are commanded."""

OF_A_TASK = -1
"""In place of a number: the text is not the program's own."""

Where = tuple[str, str, str, int]
"""The fields of a `transport.Address`."""
PlaceOf = tuple[int, int]
"""A partition of a dataset: (dataset, index); of replicated ones (dataset, 0)."""


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """What the controller knows of a run's datasets: partitions and group of each. Replicated ones have group -1; those
    that were made anew before the run have that, too, and no partitions: nobody keeps their values any longer."""

    partitions: tuple[int, ...]
    groups: tuple[int, ...]


class Shipped(msgspec.Struct, frozen=True, array_like=True):
    """A run of the program, as it travels. Runs are numbered from 0 on."""

    run: int
    layout: Layout
    definition: bytes
    """Datasets and stages, pickled."""
    program: bytes
    outline: bytes = b""
    """The definition without functions and values, pickled, for a controller that commands workers."""


# ---- a worker to the controller ------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """A worker is here; where others reach it."""

    worker: int
    where: Where
    slot: str
    """Where it runs, for people: node and process id."""


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """All that the worker holds in this epoch is here, and it calls the program."""

    epoch: int


class Used(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """Nanoseconds of tasks by partition (group, index, time), and tasks run, since the last report; block it is in."""

    epoch: int
    used: list[tuple[int, int, int]]
    tasks: int
    block: int


class RunOver(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """The worker's copy of the program has returned, or the program itself, if workers are commanded."""

    epoch: int
    blocks: int
    hash: int
    """Of all calls."""
    returned: bytes
    """What the program returned, pickled."""
    datasets: tuple[int, ...]
    """The datasets in it."""


class RunFailed(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """The program, a worker's copy of it, or a stage in it, raised an exception: that, pickled with its traceback."""

    epoch: int
    error: bytes


class Leaving(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """The worker's slot is another user's turn: its partitions have to move away within so many seconds."""

    worker: int
    within_s: float


class Left(msgspec.Struct, frozen=True, array_like=True, tag=46):
    """All others have sent their `Farewell`: nothing comes any more that would have to be passed on."""

    epoch: int


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=47):
    """The worker's process lives, also while a task keeps it busy."""

    worker: int


class PeerLost(msgspec.Struct, frozen=True, array_like=True, tag=48):
    """The link to another worker has ended, or could not be made."""

    epoch: int
    worker: int
    why: str


# ---- the controller to a worker ------------------------------------------------------------------------


class Enter(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """An epoch begins: what the worker had of the one before is over, but for values that this one keeps."""

    epoch: int
    shipped: Shipped
    until: int
    """Blocks before it are skipped; their signals say what was recorded."""
    signals: dict[int, bool]
    placed: list[tuple[int, int, int, int]]
    """The partition map: group, index, worker, version."""
    members: tuple[int, ...]
    """All workers of the epoch."""
    made: list[PlaceOf]
    """Values that are as at the program's start: the worker makes them, or asks the driver for them."""
    kept: list[PlaceOf]
    """Values that the worker has."""
    awaited: list[PlaceOf]
    """Values that are sent to it."""
    given: list[tuple[PlaceOf, int]]
    """Values that it has and sends to other workers."""
    joins: bool
    """It comes to an epoch that others are in: copies come with a `Welcome`."""


class Peer(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """Where another worker is."""

    worker: int
    where: Where


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """A worker that holds nothing any more leaves. Others send it their `Farewell`, from all `members`."""

    epoch: int
    worker: int
    members: tuple[int, ...]


class Halt(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """The run is given up, in this epoch, which has none."""

    epoch: int


class GiveBack(msgspec.Struct, frozen=True, array_like=True, tag=54):
    """Send these values to the driver: the program returned them."""

    epoch: int
    run: int
    places: list[PlaceOf]


class StoreAll(msgspec.Struct, frozen=True, array_like=True, tag=55):
    """The run is over: report all values as a snapshot of its end."""

    epoch: int
    block: int
    """What the snapshot has as its block."""
    copies: bool
    """Copies of replicated datasets, too."""


class Dismiss(msgspec.Struct, frozen=True, array_like=True, tag=56):
    """The worker ends."""

    why: str


# ---- among workers, and with the driver ----------------------------------------------------------------


class Values(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """Values of partitions, for the epoch that begins."""

    epoch: int
    values: dict[PlaceOf, Any]


class Farewell(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """The last message on a link to a worker that leaves."""

    epoch: int


class Want(msgspec.Struct, frozen=True, array_like=True, tag=62):
    """To the driver: send the values that the program gave these partitions."""

    epoch: int
    places: list[PlaceOf]


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=63):
    """To the driver: values of datasets that the program returned."""

    run: int
    epoch: int
    values: dict[PlaceOf, Any]
    last: bool
    """Whether it is all that the worker has of them, and of what was printed."""


class Printed(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """To the driver: text that a task or the program printed."""

    worker: int
    is_error: bool
    text: str
    run: int
    number: int
    """Which piece it is of what the program prints to this stream in this run, or `OF_A_TASK`."""


class Recorded(msgspec.Struct, frozen=True, array_like=True, tag=98):
    """To the driver: what ran when, for a timeline."""

    worker: int
    where: str
    """Node and process id, for people."""
    spans: bytes
    """Lines of `recording.SPAN`; times are in nanoseconds since 1970, by the clock of the worker's machine."""


class Happening(msgspec.Struct, frozen=True, array_like=True):
    """Something of which a timeline tells beside tasks."""

    kind: str
    """One of `happenings.KINDS`."""
    begin_ns: int
    """Nanoseconds since 1970, by the clock of the controller's machine."""
    end_ns: int
    worker: int = -1
    other: int = -1
    """Of a move, the worker that had the partition."""
    group: int = -1
    index: int = -1
    text: str = ""


class Happened(msgspec.Struct, frozen=True, array_like=True, tag=99):
    """The controller to the driver, for a timeline."""

    happenings: list[Happening]


# ---- the driver and the controller ---------------------------------------------------------------------


class Settings(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """The first message of the driver: how the program is to be run."""

    workers: int
    slots: int
    """Of the cluster: more workers than that are not waited for."""
    min_workers: int
    start_timeout_s: float
    snapshot_every_s: float | None
    snapshot_dir: str
    first_epoch: int
    first_worker: int
    """Epochs and workers' numbers of controllers before are below."""
    known: list[int]
    """Workers that controllers before asked for, and that may dial."""
    plane: str = LOCAL


class Runs(msgspec.Struct, frozen=True, array_like=True, tag=71):
    """All runs from the first that may have to be run again; the last one is wanted, if `wanted`."""

    runs: list[Shipped]
    wanted: bool


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=72):
    """The last run failed: it is not to be run again."""

    run: int


class Outcome(msgspec.Struct, frozen=True, array_like=True, tag=73):
    """What became of a worker's task, by the cluster's word; an empty error if it ended as it should."""

    worker: int
    error: str


class Received(msgspec.Struct, frozen=True, array_like=True, tag=74):
    """The driver has all that the run returned."""

    run: int


class Unreachable(msgspec.Struct, frozen=True, array_like=True, tag=75):
    """No scheduler can be reached, for this reason, so that nobody starts workers; empty: one can be reached again."""

    why: str


class ControllerHere(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """The controller listens."""

    where: Where


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """Submit workers of these numbers."""

    workers: tuple[int, ...]


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """Cancel the workers of these numbers, also if they run."""

    workers: tuple[int, ...]


class Over(msgspec.Struct, frozen=True, array_like=True, tag=83):
    """The run is over; what it returned comes from these workers."""

    run: int
    epoch: int
    returned: bytes
    members: tuple[int, ...]


class GivenUp(msgspec.Struct, frozen=True, array_like=True, tag=84):
    """The run has failed, with this exception; or, where that is empty, for this reason."""

    run: int
    error: bytes
    why: str


class Trim(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """Runs before this one are not needed again: a snapshot has what they made."""

    run: int


class Begin(msgspec.Struct, frozen=True, array_like=True, tag=87):
    """Workers that are commanded are there: call the program of a run, for this epoch. Blocks before `until` are
    skipped; their signals say what was recorded."""

    run: int
    epoch: int
    until: int
    signals: dict[int, bool]


class Progress(msgspec.Struct, frozen=True, array_like=True, tag=86):
    """How the program does."""

    state: str
    run: int
    block: int
    tasks: int
    workers: int
    moves: int
    rollbacks: int


# ---- what processes are started with -------------------------------------------------------------------


class Orders(msgspec.Struct, array_like=True):
    """What the parent writes to the controller's standard input."""

    driver: Where
    key: bytes
    directory: str
    """Where the Unix socket goes."""
    host: str
    """Where it listens."""
    transport: str
    allow_plaintext: bool
    settings: Settings
    is_recorded: bool = False
    """Whether the driver is told what happens."""


class Order(msgspec.Struct, array_like=True):
    """A worker's task: its number, and whom to link with."""

    worker: int
    key: bytes
    driver: Where
    controller: Where
    transport: str
    allow_plaintext: bool
    plane: str = LOCAL
    spans_per_s: int = 0
    """What it records of its tasks for a timeline; 0: nothing."""


ControlMessage = (
    Hello | Ready | Used | RunOver | RunFailed | Leaving | Left | Beat | PeerLost
    | Enter | Peer | Gone | Halt | GiveBack | StoreAll | Dismiss
    | Values | Farewell | Want | Returned | Printed | Recorded | Happened
    | Settings | Runs | Forget | Outcome | Received | Unreachable
    | ControllerHere | Ask | Withdraw | Over | GivenUp | Trim | Begin | Progress
)  # fmt: skip
