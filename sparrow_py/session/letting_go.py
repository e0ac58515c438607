"""One job that its client wants to let go of, until its scheduler has answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrow_py.errors import SparrowError
    from sparrow_py.wire import messages as m

RETENTION_S = 3600.0
"""How long a job is kept after its end unless its user says otherwise."""
Told = Callable[["SparrowError | None"], None]
"""Called once: with None, or with why not."""


class LettingGo:
    """One job that its client wants to let go of."""

    __slots__ = ("given_back", "held", "is_over", "is_sent", "retention_s", "told")

    def __init__(
        self, retention_s: float, given_back: Callable[[], Iterable[m.Outcome]], told: Told, *, is_over: bool
    ) -> None:
        self.retention_s = retention_s
        self.given_back = given_back
        """All outcomes that there are so far."""
        self.told = told
        self.is_over = is_over
        """Whether the job had ended before: then no scheduler has it."""
        self.is_sent = False
        """Whether its scheduler has been told, and has not answered."""
        self.held: list[Any] = []
        """What that has said of the job since."""
