"""When a run of commands stops before its end, as `--halt` of GNU parallel says it: `now,fail=1`, `soon,success=3`,
`soon,fail=20%`. Pure: it is told how commands end, and says whether to stop."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from sparrow_py.errors import InvalidRequest

COUNT_MAX = 10_000_000
SIGNALLED_EXIT = 128
FORMS = "never, soon or now, then fail, success or done: soon,fail=1, now,success=3, now,done=10, soon,fail=20%"
_halt = re.compile(r"(?P<when>soon|now),(?P<why>fail|success|done)=(?P<count>\d{1,8})(?P<percent>%?)", re.ASCII)
_share = re.compile(r"\d{1,3}%", re.ASCII)
_OLDER = {"1": "soon,fail=1", "2": "now,fail=1", "-1": "soon,success=1", "-2": "now,success=1"}
"""What GNU parallel still takes from before, beside 0 for never and a share of failed commands alone."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop once `count` commands, or `count` percent of all, have failed, succeeded or ended (`why`).

    now: stop those that run, too; else they end, and no other starts.
    """

    now: bool
    why: str
    count: int
    percent: bool


def parse_halt(text: str) -> Halt | None:
    """What this value of `--halt` says; None for never. `InvalidRequest` if it is none."""
    if text in ("never", "0"):
        return None
    said = f"soon,fail={text}" if _share.fullmatch(text) else _OLDER.get(text, text)
    found = _halt.fullmatch(said)
    if found is None:
        raise InvalidRequest("halt", text, FORMS)
    count, percent = int(found["count"]), bool(found["percent"])
    if not 1 <= count <= (100 if percent else COUNT_MAX):
        raise InvalidRequest("halt", text, f"a number from 1 to {COUNT_MAX}, or from 1% to 100%")
    return Halt(found["when"] == "now", found["why"], count, percent)


class Halting:
    """Counts how the commands of a run of `total` end."""

    def __init__(self, halt: Halt, total: int) -> None:
        self.halt = halt
        self._total = total
        self._failed = self._succeeded = 0
        self._status = 0
        self.halted = False

    def ended(self, exit_code: int | None) -> bool:
        """A command ended with this code (-N: killed by signal N), or could not be run (None).

        Returns whether the run is to be stopped now; that is said once.
        """
        self._failed += exit_code != 0
        self._succeeded += exit_code == 0
        counts = {"fail": self._failed, "success": self._succeeded, "done": self._failed + self._succeeded}
        if self.halted or not self._enough(counts[self.halt.why]):
            return False
        self.halted = True
        self._status = 1 if exit_code is None else exit_code if exit_code >= 0 else SIGNALLED_EXIT - exit_code
        return True

    def _enough(self, count: int) -> bool:
        return 100 * count >= self.halt.count * self._total if self.halt.percent else count >= self.halt.count

    def exit_code(self, otherwise: int) -> int:
        """The exit code of a run that was stopped, as GNU parallel has it; `otherwise` if it was not stopped."""
        if not self.halted:
            return otherwise
        if self.halt.why == "success":
            return 0
        if self.halt.percent:
            return math.ceil(100 * self._failed / self._total)
        return self._status if self.halt.count == 1 else otherwise
