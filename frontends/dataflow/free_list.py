"""Pieces of an area: which are taken, which are free. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort

ALIGNMENT = 64
"""Of pieces: a line of the cache."""


class FreeList:
    """Of an area of `size` bytes. The first free stretch that is long enough gives the piece."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken: dict[int, int] = {}
        """Lengths of pieces by offset, rounded up."""
        self._free: list[tuple[int, int]] = [(0, size)]
        """Offset and length, by offset; no two of them touch."""

    def take(self, size: int) -> int | None:
        """The offset of a piece of `size` bytes; None if there is no room for it."""
        length = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        for at, (offset, free) in enumerate(self._free):
            if free < length:
                continue
            if free == length:
                del self._free[at]
            else:
                self._free[at] = (offset + length, free - length)
            self.taken[offset] = length
            return offset
        return None

    def give(self, offset: int) -> None:
        """A piece is free again; `KeyError` if none was taken there."""
        length = self.taken.pop(offset)
        at = bisect_left(self._free, (offset, 0))
        if at < len(self._free) and self._free[at][0] == offset + length:
            length += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == offset:
            before = self._free.pop(at - 1)
            offset, length = before[0], before[1] + length
        insort(self._free, (offset, length))

    def check_invariants(self) -> None:
        """Taken and free pieces cover the area, without a gap, and no two free ones touch."""
        pieces = sorted([(offset, length, "taken") for offset, length in self.taken.items()])
        pieces = sorted(pieces + [(offset, length, "free") for offset, length in self._free])
        end, before = 0, ""
        for offset, length, kind in pieces:
            assert offset == end and length > 0, f"a gap or overlap at {end}: {pieces}"
            assert not (kind == before == "free"), f"two free pieces touch at {offset}"
            end, before = offset + length, kind
        assert end == self.size
