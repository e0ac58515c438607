"""A protocol as data: its messages' shapes, examples of each, and decoders made from shapes that were recorded.

What a version of a protocol looked like is recorded once (`record_frames`) and never changes. Tests rebuild its
decoder from that record, with nothing of today's code in it, and hold both against each other.
"""

from __future__ import annotations

import enum
import itertools
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

RECORDED = Path(__file__).parents[1] / "data"
PRIMITIVES = {kind.__name__: kind for kind in (int, float, str, bytes, bool, list, dict, tuple)}


# ---- shapes ----------------------------------------------------------------------------------


def spell(kind: Any) -> str:
    """A type as text, which `Schema` reads. A limit is no part of it."""
    if typing.get_origin(kind) is typing.Annotated:
        kind = kind.__origin__
    if kind is None or kind is types.NoneType:
        return "None"
    if kind is Ellipsis:
        return "..."
    arguments = typing.get_args(kind)
    if not arguments:
        return str(kind.__name__)
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return " | ".join(map(spell, arguments))
    return f"{typing.get_origin(kind).__name__}[{', '.join(map(spell, arguments))}]"


def describe(directions: dict[str, Any]) -> dict[str, Any]:
    """The shapes of all messages of these unions, as plain data; what a type is made of comes before it."""
    structs: dict[str, Any] = {}
    enums: dict[str, list[str]] = {}

    def visit(kind: Any) -> None:
        for argument in typing.get_args(kind):
            visit(argument)
        if not isinstance(kind, type) or kind.__name__ in structs:
            return
        if issubclass(kind, enum.Enum):
            enums[kind.__name__] = [member.value for member in kind]
        elif issubclass(kind, msgspec.Struct):
            fields = msgspec.structs.fields(kind)
            for field in fields:
                visit(field.type)
            structs[kind.__name__] = {
                "tag": kind.__struct_config__.tag,
                "fields": {field.name: spell(field.type) for field in fields},
                "optional": [field.name for field in fields if not field.required],
            }

    for union in directions.values():
        visit(union)
    members = {name: [kind.__name__ for kind in members_of(union)] for name, union in directions.items()}
    return {"enums": enums, "structs": structs, "directions": members}


def members_of(union: Any) -> tuple[type, ...]:
    """The message types of a direction."""
    return typing.get_args(union) or (union,)


class Schema:
    """A protocol rebuilt from what `describe` said of it. `kinds` has its message types by name."""

    def __init__(self, described: dict[str, Any]) -> None:
        kinds: dict[str, Any] = {
            name: enum.StrEnum(name, {value.upper(): value for value in values})  # type: ignore[misc]
            for name, values in described["enums"].items()
        }
        for name, shape in described["structs"].items():
            spelled = {field: eval(text, {**PRIMITIVES, **kinds}) for field, text in shape["fields"].items()}
            fields = [
                (field, kind, msgspec.field(default=None)) if field in shape["optional"] else (field, kind)
                for field, kind in spelled.items()
            ]
            kinds[name] = msgspec.defstruct(name, fields, array_like=True, tag=shape["tag"])  # type: ignore[arg-type]
        self.kinds: dict[str, type] = kinds
        self.directions: dict[str, set[str]] = {name: set(names) for name, names in described["directions"].items()}

    def union(self, direction: str) -> Any:
        """The messages of a direction, to make a decoder of."""
        return typing.Union[tuple(self.kinds[name] for name in self.directions[direction])]  # noqa: UP007

    def decode(self, direction: str, frame: bytes) -> list[Any]:
        """A frame's messages, as this version read it; msgspec's errors if it could not."""
        return list(msgspec.msgpack.decode(frame, type=list[self.union(direction)]))  # type: ignore[misc]


def recorded_schema(protocol: str) -> Schema:
    """That of "protocol-v3", say."""
    return Schema(json.loads((RECORDED / protocol / "schema.json").read_text()))


def recorded_lines(protocol: str, name: str) -> list[Any]:
    """The lines of JSON in one of its files."""
    return [json.loads(line) for line in (RECORDED / protocol / name).read_text().splitlines()]


# ---- values ----------------------------------------------------------------------------------


def examples(kind: type) -> dict[str, Any]:
    """Two messages of this type: one that says as little as may be, and one that has all fields, all different."""
    numbers = itertools.count(1)
    return {"bare": _struct(kind, numbers, full=False), "full": _struct(kind, numbers, full=True)}


def _struct(kind: Any, numbers: Iterator[int], *, full: bool) -> Any:
    fields = [field for field in msgspec.structs.fields(kind) if full or field.required]
    return kind(**{field.name: _value(field.type, numbers, full=full) for field in fields})


def _value(kind: Any, numbers: Iterator[int], *, full: bool) -> Any:
    if typing.get_origin(kind) is typing.Annotated:  # A limit is no part of the shape.
        kind = kind.__origin__
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin in (list, dict, tuple):
        if origin is tuple and Ellipsis not in arguments:
            return tuple(_value(argument, numbers, full=full) for argument in arguments)
        if origin is dict:
            key, value = arguments
            return {_value(key, numbers, full=full): _value(value, numbers, full=full)} if full else {}
        options = [one for one in typing.get_args(arguments[0]) or [arguments[0]] if one is not types.NoneType]
        is_union = isinstance(arguments[0], types.UnionType)
        items = options if is_union else [arguments[0], arguments[0]]
        return origin(_value(item, numbers, full=full) for item in items) if full else origin()
    if arguments:  # A union: the least that it allows, or the most.
        by_size = sorted(arguments, key=lambda one: (one is not types.NoneType, isinstance(one, type(msgspec.Struct))))
        return _value(by_size[-1 if full else 0], numbers, full=full)
    if kind is types.NoneType:
        return None
    if issubclass(kind, msgspec.Struct):
        return _struct(kind, numbers, full=full)
    if issubclass(kind, enum.Enum):
        return list(kind)[-1 if full else 0]
    if kind is bool:
        return full
    number = next(numbers)
    return {int: number, float: number + 0.5, str: f"text {number}", bytes: b"bytes %d" % number}[kind]


def plain(value: Any) -> Any:
    """A message as JSON can hold it, fields by name."""
    if isinstance(value, msgspec.Struct):
        return {field.name: plain(getattr(value, field.name)) for field in msgspec.structs.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.hex() if isinstance(value, bytes) else value


def agree(older: Any, newer: Any) -> bool:
    """Whether all that the older reading knows is the same in the newer, which may know further fields."""
    if isinstance(older, dict):
        return isinstance(newer, dict) and all(name in newer and agree(older[name], newer[name]) for name in older)
    if isinstance(older, list):
        return isinstance(newer, list) and len(older) == len(newer) and all(map(agree, older, newer))
    return bool(older == newer)
