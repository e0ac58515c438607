"""Batches of a joblib call as bytes, and the large arrays in them, which travel once.

A call of `joblib.Parallel` often gives each of its tasks the same large array: the data of a grid search. Such an array
is stored in the cluster (`Client.put`), each node fetches one copy, workers map that, and batches refer to it. What a
node keeps is an immutable copy: like joblib's own memory maps it does not see what the program writes to the array
while the call lasts.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from sparrow_py import function_pickling
from sparrow_py.stored_values import StoredValue
from sparrow_py.unpicklable import raise_explained

ARRAYS_MAX = 64
"""Stored arrays of one call that are known again; those that were stored first are forgotten first."""


# ---- at the client ---------------------------------------------------------------------------


class LargeArguments:
    """The large arrays of one call of `Parallel`.

    bytes_min: from how many bytes on an array is large; None: none is. put: keeps a value in the cluster
    (`Client.put`), and may wait.
    """

    def __init__(self, bytes_min: int | None, *, put: Callable[[Any], StoredValue]) -> None:
        self._bytes_min = sys.maxsize if bytes_min is None else bytes_min
        self._put = put
        self._lock = threading.Lock()
        self._stored: dict[int, tuple[weakref.ref[Any], StoredValue]] = {}
        """Arrays that are stored, by their ids, as long as they live."""

    def encode(self, batch: Any) -> tuple[bytes, list[StoredValue]]:
        """The batch as bytes, and the arrays that it refers to. Raises what pickling and `put` raise."""
        with self._lock:
            shared: list[Any] = []
            pickled = self._pickled(batch, shared)
            return pickled, [self._value(array) for array in shared]

    def _value(self, array: Any) -> StoredValue:
        key, stored = id(array), self._stored
        known = stored.get(key)
        if known is None or known[0]() is not array:
            value = self._put(array)
            stored.pop(key, None)
            if len(stored) >= ARRAYS_MAX:
                stored.pop(next(iter(stored)), None)
            known = stored[key] = weakref.ref(array, lambda ref: _forget(stored, key, ref)), value
        return known[1]

    def _pickled(self, batch: Any, shared: list[Any]) -> bytes:
        """The batch; `shared` gets the arrays that are referred to."""
        file = io.BytesIO()
        try:
            _BatchPickler(file, lambda array: self._place(array, shared)).dump(batch)
        except Exception as error:
            raise_explained(error, [(f"calls[{number}]", call) for number, call in enumerate(batch.items)])
        return file.getvalue()

    def _place(self, array: Any, shared: list[Any]) -> int | None:
        """Where among the batch's shared arrays this one stands; None if it is not to be one."""
        if array.nbytes < self._bytes_min or array.dtype.hasobject:
            return None
        for place, known in enumerate(shared):
            if known is array:
                return place
        shared.append(array)
        return len(shared) - 1


def _forget(stored: dict[int, tuple[weakref.ref[Any], StoredValue]], key: int, ref: weakref.ref[Any]) -> None:
    """The array is gone. Another may have its id by now."""
    known = stored.get(key)
    if known is not None and known[0] is ref:
        del stored[key]


class _BatchPickler(function_pickling.Pickler):
    """Pickles arrays that have a place as that."""

    def __init__(self, file: io.BytesIO, place: Callable[[Any], int | None]) -> None:
        super().__init__(file, protocol=function_pickling.PROTOCOL)
        numpy: Any = sys.modules.get("numpy")  # Who has none loaded has no arrays.
        self._kind: type = _NoArray if numpy is None else numpy.ndarray
        self._place_of = place

    def persistent_id(self, value: Any) -> int | None:
        """For pickle: the array's place, or None for what is pickled with the batch."""
        return self._place_of(value) if isinstance(value, self._kind) else None


class _NoArray:
    """What nothing is an instance of."""


# ---- at the worker ---------------------------------------------------------------------------


class _BatchUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: Sequence[Any]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, place: int) -> Any:
        """For pickle: the reverse of `persistent_id`."""
        return self._arrays[place]


def run_batch(batch: bytes, arrays: Sequence[Any] = (), *, read_only: bool = True) -> Any:
    """Run a batch over the arrays that it refers to. read_only: whether it gets arrays that cannot be written to, as
    from joblib's memory maps, or copies of its own. Pickled by name."""
    if not arrays:
        return pickle.loads(batch)()
    return _BatchUnpickler(io.BytesIO(batch), arrays if read_only else [array.copy() for array in arrays]).load()()
