"""The partitions that a worker holds, and its copies of replicated datasets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from frontends.dataflow.errors import PartitionChanged
from frontends.dataflow.stages import DatasetSpec, Definition, Filled, Given, Loaded
from frontends.dataflow.values import copied, described, is_rebuilt, read_only, writable

Place = tuple[int, int]
"""A partition of a dataset: (dataset, index); of replicated ones (dataset, 0)."""
Guard = tuple["np.ndarray[Any, Any]", tuple[int, ...], "np.dtype[Any]", Place]
"""An array as stages are handed it, and the shape and dtype that it has to keep."""


def first_value(spec: DatasetSpec, index: int) -> Any:
    """What a partition holds when the program starts."""
    match spec.source:
        case Given(values):
            return copied(values[index])
        case Filled(shapes, dtype, fill):
            return np.full(shapes[index], fill, dtype=dtype)
        case Loaded(function):
            try:
                loaded = function(index)
            except BaseException as error:
                error.add_note(f"while partition {index} of {spec.name} was loaded")
                raise
            if type(loaded) is np.memmap or (type(loaded) is np.ndarray and not loaded.flags.c_contiguous):
                return np.array(loaded, order="C")  # As it will be when it has moved: in another order sums differ.
            return loaded


class Store:
    """Values by dataset and index, and the views of them that stages are handed."""

    def __init__(self) -> None:
        self._values: dict[Place, Any] = {}
        self._readable: dict[Place, Any] = {}
        self._writable: dict[Place, Any] = {}

    def __contains__(self, place: object) -> bool:
        return place in self._values

    def value(self, place: Place) -> Any:
        return self._values[place]

    def put(self, place: Place, value: Any) -> None:
        self._values[place] = value
        self._readable.pop(place, None)
        self._writable.pop(place, None)

    def take(self, place: Place) -> Any:
        """The value, which is no longer here: it moves away."""
        value = self._values.pop(place)
        self._readable.pop(place, None)
        self._writable.pop(place, None)
        return value

    def drop(self, dataset: int) -> None:
        """Forget all values of a dataset."""
        for place in [place for place in self._values if place[0] == dataset]:
            self.take(place)

    def overwrite(self, place: Place, value: Any) -> None:
        """A new value of a copy. Arrays stay where they are, as tasks are bound to them."""
        mine = self._values[place]
        if isinstance(mine, np.ndarray):
            mine[...] = value
        else:
            self.put(place, value)

    def readable(self, place: Place) -> Any:
        """For stages that only read; of values that are rebuilt for each task, the value itself."""
        value = self._values[place]
        if is_rebuilt(value):
            return value
        view = self._readable.get(place)
        if view is None:
            view = self._readable[place] = read_only(value)
        return view

    def writable(self, place: Place) -> Any:
        view = self._writable.get(place)
        if view is None:
            view = self._writable[place] = writable(self._values[place])
        return view

    def guard(self, place: Place) -> Guard | None:
        """What `check_unchanged` needs of an array that stages are handed to write; None of other values."""
        mine = self._values.get(place)
        return (self.writable(place), mine.shape, mine.dtype, place) if isinstance(mine, np.ndarray) else None

    def check_unchanged(self, guards: Iterable[Guard], definition: Definition) -> None:
        """Refuse another shape or dtype of arrays that stages were handed to write."""
        for view, shape, dtype, (dataset, index) in guards:
            if view.shape == shape and view.dtype is dtype:
                continue
            if view.shape == shape and view.dtype == dtype:
                continue
            self._writable.pop((dataset, index))
            writers = [stage.name for stage in definition.stages if dataset in stage.writes]
            mine = self._values[dataset, index]
            raise PartitionChanged(
                definition.datasets[dataset].name, index, described(mine), described(view), ", ".join(writers)
            )
