"""The owners of data sets: which directories an executor may load, and which users may read what it has loaded.

The operator names directories and their owners: `DIR` is for all users, `USER=DIR` for that user. If the operator
names no directory and requires no authentication, any directory may be loaded, and a data set belongs to the user who
had it loaded as long as it is held.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from frontends.sql.errors import NotYours
from sparrow_py.errors import InvalidOption

OPTION = "sql_data"
ALLOWED = "DIR or USER=DIR, where DIR begins with /"
ROOT = re.compile(r"((?P<user>[^/=]+)=)?(?P<directory>/[^\0]*)")
Readers = frozenset[str] | None
"""The users who may read a data set; None: everybody."""


class DataAccess:
    """Which users may read which directories. `texts`: the operator's values; None: any directory may be loaded."""

    def __init__(self, texts: Iterable[str] | None) -> None:
        self._roots: dict[Path, Readers] | None = None if texts is None else {}
        for text in texts or ():
            user, root = parse_root(text)
            assert self._roots is not None
            before = self._roots.get(root, frozenset())
            self._roots[root] = None if not user or before is None else before | {user}

    def readers(self, directory: Path, user: str) -> Readers:
        """The readers of a data set in this directory, whose path must have no links; `NotYours` if not this user."""
        if self._roots is None:
            return frozenset((user,))
        nearest = next((root for root in (directory, *directory.parents) if root in self._roots), None)
        readers = frozenset[str]() if nearest is None else self._roots[nearest]
        check_reader(readers, directory, user)
        return readers


def check_reader(readers: Readers, directory: Path, user: str) -> None:
    """Raise `NotYours` unless the user is one of the readers."""
    if readers is not None and user not in readers:
        raise NotYours(str(directory), user)


def parse_root(text: str) -> tuple[str, Path]:
    """The user (empty: everybody) and the directory, its links resolved, that a value of the option names.

    `InvalidOption` if the text is not such a value.
    """
    found = ROOT.fullmatch(text)
    if found is None:
        raise InvalidOption(OPTION, text, ALLOWED)
    return found["user"] or "", Path(found["directory"]).resolve()
