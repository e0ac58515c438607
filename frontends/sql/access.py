"""Whose data sets are whose: which directories an executor may load, and who may read what it has loaded.

Data sets belong to the users that the operator says, by the directories where they lie: `DIR` is everybody's, and
`USER=DIR` that user's. Where the operator says nothing, and asks nobody who they are, any directory may be loaded, and
a data set belongs to the user who had it loaded as long as it is held.
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
    """Who may have which directories. `texts`: what the operator says; None: nothing, and any may be loaded."""

    def __init__(self, texts: Iterable[str] | None) -> None:
        self._roots: dict[Path, Readers] | None = None if texts is None else {}
        for text in texts or ():
            user, root = parse_root(text)
            assert self._roots is not None
            before = self._roots.get(root, frozenset())
            self._roots[root] = None if not user or before is None else before | {user}

    def readers(self, directory: Path, user: str) -> Readers:
        """Who may read a data set in this directory, of which no part may be a link; `NotYours` if not this user."""
        if self._roots is None:
            return frozenset((user,))
        nearest = next((root for root in (directory, *directory.parents) if root in self._roots), None)
        readers = frozenset[str]() if nearest is None else self._roots[nearest]
        check_reader(readers, directory, user)
        return readers


def check_reader(readers: Readers, directory: Path, user: str) -> None:
    """`NotYours` unless the user is one of them."""
    if readers is not None and user not in readers:
        raise NotYours(str(directory), user)


def parse_root(text: str) -> tuple[str, Path]:
    """User (empty: everybody) and directory, where links lead, of a value of the option; `InvalidOption` if it is
    none."""
    found = ROOT.fullmatch(text)
    if found is None:
        raise InvalidOption(OPTION, text, ALLOWED)
    return found["user"] or "", Path(found["directory"]).resolve()
