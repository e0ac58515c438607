"""Errors of queries and of their data.

SparrowError
├── InvalidRequest
│   ├── InvalidQuery          the text is not a query over the dataset's tables
│   │   └── NotSupported      the query uses a construct that is not supported; the message names it
│   └── DoesNotFit            a scale factor whose data do not fit memory or disk
├── NotYours             a data set that the user may not load or read
├── PartitionLost             no live node holds a replica of a partition; names table and partition
├── QueryFailed               a task of the query failed
└── ExtraMissing              a package of the extra `sql` is not installed
"""

from __future__ import annotations

from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidRequest, SparrowError

QUERY_FIELD = "sql"


class InvalidQuery(InvalidRequest):
    """The text is not a query over the dataset's tables."""

    def __init__(self, reason: str) -> None:
        super().__init__(QUERY_FIELD, None, "", f"{QUERY_FIELD}: {reason}")
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.reason,)


class NotSupported(InvalidQuery):
    """The query uses `construct`, which is not supported."""

    def __init__(self, construct: str) -> None:
        super().__init__(f"{construct} is not supported")
        self.construct = construct

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.construct,)


class DoesNotFit(InvalidRequest):
    """A scale factor whose data do not fit."""


class NotYours(SparrowError):
    """A data set that the user may not load or read. The message does not say whether the data set exists."""

    def __init__(self, directory: str, user: str) -> None:
        super().__init__(
            f"user {user} may not have the data set in {directory}: it belongs to another user, or to none; the "
            "operator of the node monitor names the owners with sql_data"
        )
        self.directory, self.user = directory, user

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.directory, self.user)


class PartitionLost(SparrowError):
    """No live node holds a replica of these partitions of these tables."""

    def __init__(self, dataset: str, tables: list[str], partitions: list[int]) -> None:
        numbers = ", ".join(map(str, partitions))
        super().__init__(
            f"{'partition' if len(partitions) == 1 else 'partitions'} {numbers} of {' and '.join(tables)} (dataset "
            f"{dataset}): no live node holds a replica; `sparrow sql place` loads it again"
        )
        self.dataset, self.tables, self.partitions = dataset, tables, partitions

    def __reduce__(self) -> tuple[type, tuple[str, list[str], list[int]]]:
        return type(self), (self.dataset, self.tables, self.partitions)


class QueryFailed(SparrowError):
    """A task of the query failed; the message says which and why."""


class ExtraMissing(SparrowError):
    """A package that the sql framework needs is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"the package {package} is not installed; the extra brings it: {install_command('sql')}")
        self.package = package

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.package,)
