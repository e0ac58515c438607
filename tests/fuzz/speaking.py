"""Messages made up by a seeded generator: of the right shape, with values that were heard, and with wild ones."""

import random
from typing import Any

import msgspec
from msgspec import inspect

from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m

HEARD_MAX = 300
"""Values remembered."""
INTS = (-1, 0, 1, 2, 3, 100, 10_001, 1 << 31, (1 << 63) - 1, -(1 << 63))
FLOATS = (-1.0, 0.0, 0.5, 1.0, 2.0, 1e9, 1e308, float("nan"), float("inf"))
TEXTS = (
    "",
    "j",
    "noop",
    "sleep",
    "python",
    "no-such-app",
    "n",
    "a\nb",
    "\x1b[2J",
    "x" * 300,
    "ü",
    "node == n",
    "0" * 64,
)
BYTES = (b"", b"x", b"\x00\xff", b"[]", b"x" * 5000)


def kinds(union: Any) -> list[type]:
    """The messages of a union."""
    return list(union.__args__)


class Speaker:
    """Makes up values of the types of messages."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._heard: dict[type, list[Any]] = {int: [], str: []}

    def hear(self, value: Any) -> None:
        """Remember the numbers and names in what the other side said, given as lists: they mean something to it."""
        if isinstance(value, list):
            for part in value:
                self.hear(part)
        elif type(value) in self._heard:
            known = self._heard[type(value)]
            known.append(value)
            if len(known) > HEARD_MAX:
                del known[: HEARD_MAX // 2]

    def make(self, kind: type) -> Any:
        """A value of the type."""
        return self._value(inspect.type_info(kind))

    def _one(self, kind: type, values: tuple[Any, ...]) -> Any:
        known = self._heard.get(kind)
        return self.random.choice(known) if known and self.random.random() < 0.6 else self.random.choice(values)

    def _count(self) -> int:
        return self.random.choice((0, 1, 1, 2, 3, 20))

    def _value(self, shape: Any) -> Any:
        match shape:
            case inspect.IntType():
                return self._one(int, INTS)
            case inspect.FloatType():
                return self._one(float, FLOATS)
            case inspect.StrType():
                return self._one(str, TEXTS)
            case inspect.BytesType():
                return self.random.choice(BYTES)
            case inspect.BoolType():
                return self.random.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.ListType() | inspect.VarTupleType():
                return [self._value(shape.item_type) for _ in range(self._count())]
            case inspect.TupleType():
                return [self._value(part) for part in shape.item_types]
            case inspect.DictType():
                return {self._value(shape.key_type): self._value(shape.value_type) for _ in range(self._count())}
            case inspect.EnumType():
                return self.random.choice(list(shape.cls))
            case inspect.LiteralType():
                return self.random.choice(shape.values)
            case inspect.UnionType():
                return self._value(self.random.choice(shape.types))
            case inspect.StructType():
                return shape.cls(**{field.name: self._value(field.type) for field in shape.fields})
        raise TypeError(shape)

    def encoded(self, messages: list[m.Message]) -> bytes:
        """Their frame; once in a while with some bytes wrong."""
        frame = bytearray(msgspec.msgpack.encode(messages))
        if self.random.random() < 0.02:
            for _ in range(self.random.randint(1, 4)):
                frame[self.random.randrange(len(frame))] = self.random.randrange(256)
        return bytes(frame)

    # ---- what an honest one would say ---------------------------------------------------------

    def job(self) -> list[m.Message]:
        """A job that can run, and its tasks."""
        name, count = f"f{self.random.randrange(30)}", self.random.randint(0, 5)
        stage = m.Stage("noop", count, b"", "", 2.0, self.random.choice((0, 3)), None)
        return [m.SubmitJob(name, 0, "", [stage], 2, False, None, False), m.AddTasks(name, 0, [b""] * count)]

    def reserve(self) -> list[m.Message]:
        """Reservations of a job that can run."""
        ticket, job = self.random.randrange(1 << 20), f"f{self.random.randrange(30)}"
        app = self.random.choice(("noop", "noop", "python", "no-such-app"))
        common = m.Common(job, 0, b"")
        return [common, m.Reserve(ticket, job, 0, "fuzz", 1.0, 0, app, self.random.randint(1, 3), 0, None)]

    def answer(self, message: Any) -> list[m.Message]:
        """What an honest peer answers to this message, if it answers at all."""
        match message:
            case m.Reserve():
                return [m.GetTasks(self.random.randrange(1 << 30), message.ticket, 1)]
            case m.Launch():
                status = self.random.choice(list(TaskStatus))
                return [m.Report(message.job, message.task, message.attempt, status, b"", "", 1.0, 0.1)]
            case m.CancelAttempt():
                return [m.AttemptRuns(message.job, message.attempt)]
            case m.Claim():
                return [m.Claimed(message.job, message.epoch, [], False, message.user, message.instance)]
            case m.AskLength():
                return [m.QueueLength(message.probe, 1)]
            case m.GetTasks() if self.random.random() < 0.5:
                return [m.NoTask(message.ask, message.count)]
            case m.GetTasks():
                job, attempt = f"f{self.random.randrange(30)}", self.random.randrange(1 << 40)
                return [m.Launch(message.ask, job, 0, 0, attempt, b"")]
        return []
