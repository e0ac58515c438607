"""JSON bodies decoded into structs, with errors that name the field, its value and what is allowed."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec
import orjson
from msgspec import inspect

from sparrow_py.errors import InvalidRequest

T = TypeVar("T")

VALUE_LOOKUP_BYTES_MAX = 1 << 20
"""The value that an error repeats is looked up in bodies of up to this size: that decodes all of it again."""
WORDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "text",
}
OTHERS = {
    "Invalid base64 encoded string": "base64",
    "Number out of range": "a number of at most 1.8e308",
    "Integer value out of range": "a smaller whole number",
}
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_UNKNOWN, _MISSING = "Object contains unknown field `", "Object missing required field `"
_NO_CHOICE = "Invalid enum value"


class BodyDecoder(Generic[T]):
    """Decodes JSON into the struct `kind`."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._shape = inspect.type_info(kind)

    def __call__(self, body: bytes) -> T:
        """The struct; `InvalidRequest` for the first thing that is wrong with the body."""
        try:
            body.decode()  # What a struct takes as it stands (msgspec.Raw) is not looked at further.
            return self._decoder.decode(body)
        except UnicodeDecodeError as error:
            raise InvalidRequest("body", body[error.start : error.start + 1], "JSON in UTF-8") from None
        except RecursionError:
            raise InvalidRequest("body", f"{len(body)} bytes", "JSON that is not nested so deeply") from None
        except msgspec.ValidationError as error:
            raise self._invalid(str(error), body) from None
        except msgspec.DecodeError as error:
            raise InvalidRequest("body", body[:80].decode("utf-8", "replace"), f"JSON ({error})") from None

    def _invalid(self, text: str, body: bytes) -> InvalidRequest:
        """The error that msgspec's text means: `Expected …, got … - at $.path`."""
        problem, at, path = text.rpartition(" - at `")
        if not at:
            problem, path = text, "$`"
        path = path[:-1].removeprefix("$").removeprefix(".")
        if problem.startswith(_UNKNOWN):
            field = f"{path}.{problem[len(_UNKNOWN) : -1]}".removeprefix(".")
            allowed = ", ".join(_fields_at(self._shape, path))
            return InvalidRequest(field, None, allowed, f"{field}: there is no such field; allowed: {allowed}")
        if problem.startswith(_MISSING):
            field = f"{path}.{problem[len(_MISSING) : -1]}".removeprefix(".")
            return InvalidRequest(field, None, "", f"{field}: missing")
        allowed = self._choices(path) if problem.startswith(_NO_CHOICE) else _allowed(problem)
        field, (found, value) = path or "body", _value_at(path, body)
        return InvalidRequest(field, value, allowed, "" if found else f"{field}: allowed: {allowed}")

    def _choices(self, path: str) -> str:
        """The values that the field at the path may have."""
        parent, _, name = path.rpartition(".")
        field = next(field.type for field in _struct_at(self._shape, parent).fields if field.encode_name == name)
        return ", ".join(field.values)


def _allowed(problem: str) -> str:
    """What would be right, in words."""
    expected = re.fullmatch(r"Expected `([^`]*)`(?:, got `[^`]*`)?(.*)", problem)
    if expected is None:
        return OTHERS.get(problem, problem)
    words = [WORDS.get(word, word) for word in expected[1].split(" | ")]
    return " or ".join(words) + expected[2]


def _fields_at(shape: Any, path: str) -> list[str]:
    """The fields of the struct at the path."""
    return [field.encode_name for field in _struct_at(shape, path).fields]


def _struct_at(shape: Any, path: str) -> Any:
    """The struct at the path, or that of a list there."""
    for name, _ in _STEP.findall(path):
        if name:
            shape = next(field.type for field in _inner(shape).fields if field.encode_name == name)
    return _inner(shape)


def _inner(shape: Any) -> Any:
    """The struct in a list of structs, in annotations, or beside null."""
    while not isinstance(shape, inspect.StructType):
        if isinstance(shape, inspect.UnionType):
            shape = next(kind for kind in shape.types if not isinstance(kind, inspect.NoneType))
        else:
            shape = shape.type if isinstance(shape, inspect.Metadata) else shape.item_type
    return shape


def _value_at(path: str, body: bytes) -> tuple[bool, Any]:
    """Whether it can be told what stands there, and what does."""
    if len(body) > VALUE_LOOKUP_BYTES_MAX or "..." in path:
        return False, None
    try:
        value = orjson.loads(body)
        for name, index in _STEP.findall(path):
            value = value[name] if name else value[int(index)]
    except (ValueError, LookupError, TypeError, RecursionError):
        return False, None
    return True, value
