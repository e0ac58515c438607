"""Gangs of several kinds of tasks: which kinds are to be in the network at the same time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class KindGangs:
    """A gang starts when all its tasks can, so all its kinds must be inside at once. A kind may be of several gangs."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[str, None]] = {}
        """By gang."""
        self._gangs: dict[str, dict[Hashable, None]] = {}
        """By kind."""

    def add(self, gang: Hashable, kind: str) -> None:
        """The gang has tasks of the kind."""
        self._kinds.setdefault(gang, {})[kind] = None
        self._gangs.setdefault(kind, {})[gang] = None

    def remove(self, gang: Hashable, kind: str) -> None:
        """The gang has no tasks of the kind any more. Nothing happens if it had none."""
        if kind not in self._kinds.get(gang, ()):
            return
        del self._kinds[gang][kind], self._gangs[kind][gang]
        if not self._kinds[gang]:
            del self._kinds[gang]
        if not self._gangs[kind]:
            del self._gangs[kind]

    def kinds(self, gang: Hashable) -> Iterable[str]:
        """Those of the gang, in the order in which they came."""
        return self._kinds.get(gang, {})

    def gang_of(self, kind: str, kinds_max: int) -> Hashable | None:
        """The first gang with tasks of the kind that has several kinds, but no more than so many; None if there is
        none."""
        return next((gang for gang in self._gangs.get(kind, ()) if 1 < len(self._kinds[gang]) <= kinds_max), None)
