"""A stand-in for Spark's RDDs, in plain lists: to run what `pyspark_rdd` generates where there is no Spark.

It computes at once, in this process. What Spark sends between processes is pickled here, too, so that keys meet copies.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import chain
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

PARTS = 2


class Rdd:
    """An RDD. parts: lists of elements."""

    is_cached = False

    def __init__(self, parts: Iterable[Iterable[Any]]) -> None:
        self.parts = [list(part) for part in parts]
        self.context = SimpleNamespace(defaultParallelism=PARTS)

    def _all(self) -> list[Any]:
        """Copies of the elements."""
        return [pickle.loads(pickle.dumps(one)) for one in chain(*self.parts)]

    def _by_key(self) -> dict[Any, list[Any]]:
        groups: dict[Any, list[Any]] = {}
        for key, value in self._all():
            groups.setdefault(key, []).append(value)
        return groups

    # ---- transformations ---------------------------------------------------------------------

    def mapPartitions(self, function: Callable[[Iterator[Any]], Iterable[Any]]) -> Rdd:
        return Rdd(function(iter(part)) for part in self.parts)

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> Rdd:
        return Rdd(chain(*map(function, part)) for part in self.parts)

    def join(self, other: Rdd) -> Rdd:
        right = other._by_key()
        return Rdd([[(key, (one, two)) for key, one in self._all() for two in right.get(key, ())]])

    def leftOuterJoin(self, other: Rdd) -> Rdd:
        right = other._by_key()
        return Rdd([[(key, (one, two)) for key, one in self._all() for two in right.get(key, (None,))]])

    def subtractByKey(self, other: Rdd) -> Rdd:
        right = other._by_key()
        return Rdd([[(key, one) for key, one in self._all() if key not in right]])

    def reduceByKey(self, function: Callable[[Any, Any], Any]) -> Rdd:
        return Rdd([[(key, reduce(function, values)) for key, values in self._by_key().items()], []])

    def distinct(self) -> Rdd:
        return Rdd([dict.fromkeys(self._all())])

    def intersection(self, other: Rdd) -> Rdd:
        there = set(other._all())
        return Rdd([dict.fromkeys(one for one in self._all() if one in there)])

    def subtract(self, other: Rdd) -> Rdd:
        there = set(other._all())
        return Rdd([[one for one in self._all() if one not in there]])

    def union(self, other: Rdd) -> Rdd:
        return Rdd([*self.parts, *other.parts])

    def cartesian(self, other: Rdd) -> Rdd:
        return Rdd([(one, two) for one in left for two in right] for left in self.parts for right in other.parts)

    def coalesce(self, number: int) -> Rdd:
        return Rdd([self._all(), *[[]] * (number - 1)])

    def persist(self) -> None:
        self.is_cached = True

    def localCheckpoint(self) -> None:
        assert self.is_cached

    # ---- actions -----------------------------------------------------------------------------

    def collect(self) -> list[Any]:
        return self._all()

    def count(self) -> int:
        return len(self._all())

    def isEmpty(self) -> bool:
        return not self.count()

    def fold(self, nothing: Any, function: Callable[[Any, Any], Any]) -> Any:
        return reduce(function, (reduce(function, part, nothing) for part in self.parts), nothing)

    def getNumPartitions(self) -> int:
        return len(self.parts)


class _Context:
    """Stands for `SparkContext`, and for the builder of a session."""

    @property
    def sparkContext(self) -> _Context:
        return self

    def getOrCreate(self) -> _Context:
        return self

    def master(self, url: str) -> _Context:
        return self

    def config(self, *, map: dict[str, str]) -> _Context:
        assert all(isinstance(value, str) for value in map.values())
        return self

    def parallelize(self, elements: Iterable[Any], parts: int) -> Rdd:
        listed = list(elements)
        return Rdd(listed[part::parts] for part in range(parts))


@contextmanager
def stand_in() -> Iterator[None]:
    """Scripts that import Spark get this in its place."""
    package, module = ModuleType("pyspark"), ModuleType("pyspark.sql")
    module.SparkSession = SimpleNamespace(builder=_Context())  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyspark", package)
        patch.setitem(sys.modules, "pyspark.sql", module)
        yield
