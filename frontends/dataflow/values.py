"""Values of partitions: how they are copied, shown read-only, checked and put together."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from frontends.dataflow.errors import InvalidProgram


def checked_array(field: str, value: Any) -> np.ndarray[Any, Any]:
    """An array of its own with these contents; refused if it holds Python objects, or if some of it is masked."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidProgram(
            field,
            None,
            "",
            f"{field}: a masked array, whose mask would be lost; give its data and its mask as two arrays: "
            "Dataflow.partition((a.data, np.ma.getmaskarray(a)))",
        )
    array = np.array(value)
    if array.dtype.hasobject:
        raise InvalidProgram(
            field,
            None,
            "",
            f"{field}: an array of Python objects (dtype {array.dtype}); allowed: arrays of numbers, booleans or "
            "fixed-size strings; lists of Python objects are made datasets by Dataflow.objects",
        )
    return array


def copied(value: Any) -> Any:
    """A copy that shares nothing with the value."""
    return value.copy() if type(value) is np.ndarray else copy.deepcopy(value)


def read_only(value: Any) -> Any:
    """The value with its arrays, also those in tuples, named tuples, lists and dicts, as views that refuse writes."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, tuple):
        parts = [read_only(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if type(value) is list:
        return [read_only(part) for part in value]
    if type(value) is dict:
        return {key: read_only(part) for key, part in value.items()}
    return value


def is_rebuilt(value: Any) -> bool:
    """Whether `read_only` makes a container anew, which does not see what is written to the value later."""
    if isinstance(value, tuple):
        return any(map(is_rebuilt, value))
    return type(value) is list or type(value) is dict


def writable(value: Any) -> Any:
    """The value as a stage is handed it that writes it: a view, so that reshaping it in place leaves ours."""
    return value.view() if isinstance(value, np.ndarray) else value


def is_empty(chunk: Any) -> bool:
    """Whether there is nothing to send."""
    return chunk is None or (isinstance(chunk, np.ndarray) and not chunk.size)


def described(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"


def put_together(values: Sequence[Any]) -> Any:
    """Partitions as one array, row after row, if they are arrays that fit; else a list of copies."""
    first = values[0]
    if all(
        isinstance(value, np.ndarray)
        and value.ndim
        and value.dtype == first.dtype
        and value.shape[1:] == first.shape[1:]
        for value in values
    ):
        return np.concatenate(list(values))
    return [copied(value) for value in values]
