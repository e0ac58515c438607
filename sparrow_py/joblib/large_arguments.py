"""Batches of a joblib call as bytes, and the large arrays in them, which travel once.

A call of `joblib.Parallel` often gives each of its tasks the same large array: the data of a grid search. Such an array
is pickled with the first batch that has it. Once a second one has it, too, it is uploaded as common bytes of a job, of
which each node fetches one copy, and batches refer to it. What a node keeps is an immutable copy: like joblib's own
memory maps it does not see what the program writes to the array while the call lasts.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from sparrow_py import calls, function_pickling
from sparrow_py.job import BlobRef
from sparrow_py.session.large_inputs import INLINE_BYTES_MAX
from sparrow_py.unpicklable import raise_explained

SETS_MAX = 64
"""Sets of arrays of one call that are uploaded; further ones travel with their batches."""


# ---- at the client ---------------------------------------------------------------------------


class LargeArguments:
    """The large arrays of one call of `Parallel`.

    bytes_min: from how many bytes on an array is large; None: none is. read_only: whether tasks get arrays that cannot
    be written to, as from joblib's memory maps. upload: keeps bytes in the cluster (`Client.upload`), and may wait.
    """

    def __init__(self, bytes_min: int | None, *, read_only: bool, upload: Callable[[bytes], BlobRef]) -> None:
        self._bytes_min = sys.maxsize if bytes_min is None else bytes_min
        self._read_only = read_only
        self._upload = upload
        self._lock = threading.Lock()
        self._seen: dict[int, weakref.ref[Any]] = {}
        """Arrays that one batch has had, by id."""
        self._sets: dict[tuple[int, ...], tuple[Sequence[Any], bytes | BlobRef]] = {}
        """Common bytes for arrays by their ids, which are theirs as long as they are kept here."""

    def encode(self, batch: Any) -> tuple[bytes, bytes | BlobRef | None]:
        """The batch as bytes, and the common bytes of the job that runs it; None if it refers to no array, so that
        `run_batch` runs it. Raises what pickling and `upload` raise."""
        with self._lock:
            shared: list[Any] = []
            pickled = self._pickled(batch, shared)
            if not shared:
                return pickled, None
            ids = tuple(map(id, shared))
            if ids not in self._sets:
                if len(self._sets) >= SETS_MAX:
                    return self._pickled(batch, None), None
                self._sets[ids] = shared, self._common(shared)
            return pickled, self._sets[ids][1]

    def _common(self, shared: Sequence[Any]) -> bytes | BlobRef:
        common = calls.encode_function(BatchesOver(shared, read_only=self._read_only))
        return self._upload(common) if len(common) > INLINE_BYTES_MAX else common

    def _pickled(self, batch: Any, shared: list[Any] | None) -> bytes:
        """The batch; `shared` gets the arrays that are referred to. None: all are pickled with it."""
        file = io.BytesIO()
        try:
            _BatchPickler(file, None if shared is None else lambda array: self._place(array, shared)).dump(batch)
        except Exception as error:
            raise_explained(error, [(f"calls[{number}]", call) for number, call in enumerate(batch.items)])
        return file.getvalue()

    def _place(self, array: Any, shared: list[Any]) -> int | None:
        """Where among the batch's shared arrays this one stands; None if it is not to be one."""
        if array.nbytes < self._bytes_min:
            return None
        for place, known in enumerate(shared):
            if known is array:
                return place
        before = self._seen.get(id(array))
        if before is None or before() is not array:
            key, seen = id(array), self._seen
            seen[key] = weakref.ref(array, lambda ref: seen.pop(key, None) if seen.get(key) is ref else None)
            return None
        shared.append(array)
        return len(shared) - 1


class _BatchPickler(function_pickling.Pickler):
    """Pickles arrays that have a place as that."""

    def __init__(self, file: io.BytesIO, place: Callable[[Any], int | None] | None) -> None:
        super().__init__(file, protocol=function_pickling.PROTOCOL)
        numpy: Any = sys.modules.get("numpy")  # Who has none loaded has no arrays.
        self._kind: type = _NoArray if numpy is None else numpy.ndarray
        self._place_of = place
        self._inline: set[int] = set()

    def persistent_id(self, value: Any) -> int | None:
        """For pickle: the array's place, or None for what is pickled with the batch."""
        if self._place_of is None or not isinstance(value, self._kind) or id(value) in self._inline:
            return None
        place = self._place_of(value)
        if place is None:
            self._inline.add(id(value))  # In this batch it is there already, wherever else it occurs.
        return place


class _NoArray:
    """What nothing is an instance of."""


# ---- at the worker ---------------------------------------------------------------------------


class BatchesOver:
    """The function of jobs whose batches refer to large arrays; pickled, so its module and name stay."""

    def __init__(self, arrays: Sequence[Any], *, read_only: bool) -> None:
        self.arrays = arrays
        self.read_only = read_only

    def __call__(self, batch: bytes) -> Any:
        """Run a batch."""
        if self.read_only:
            for array in self.arrays:
                array.flags.writeable = False
        return _BatchUnpickler(io.BytesIO(batch), self.arrays).load()()


class _BatchUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: Sequence[Any]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, place: int) -> Any:
        """For pickle: the reverse of `persistent_id`."""
        return self._arrays[place]


def run_batch(batch: bytes) -> Any:
    """Run a batch that has all it needs in it. Pickled by name."""
    return pickle.loads(batch)()
