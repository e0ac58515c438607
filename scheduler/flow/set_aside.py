"""Stages that are left out of rounds for a while, as the policy got wrong what their tasks cost. They are tried again
after pauses that grow; all others go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.flow.cluster_changes import Mistake
    from scheduler.plane import BookForPlane

PAUSE_S, PAUSE_MAX_S = 1.0, 300.0
"""The first pause of a stage, which doubles up to the longest."""


@dataclass(slots=True)
class _Aside:
    """What is remembered of a stage as long as tasks of it wait."""

    mistake: Mistake
    pause_s: float
    until_s: float
    waits: bool = True
    """Whether it is left out now."""


class SetAside:
    """See the module's docstring."""

    def __init__(self, book: BookForPlane, again: Callable[[StageState], None]) -> None:
        """again: called when a stage is to be tried again."""
        self._book = book
        self._again = again
        self._stages: dict[StageState, _Aside] = {}

    def __bool__(self) -> bool:
        return bool(self._stages)

    def __contains__(self, stage: StageState) -> bool:
        """Whether the stage is left out of rounds now."""
        aside = self._stages.get(stage)
        return aside is not None and aside.waits

    def add(self, stage: StageState, mistake: Mistake, now_s: float) -> None:
        """Leave the stage out from now on. The log names it, once for each place in the policy that is wrong."""
        before = self._stages.get(stage)
        pause_s = PAUSE_S if before is None else min(2 * before.pause_s, PAUSE_MAX_S)
        aside = self._stages[stage] = _Aside(mistake, pause_s, now_s + pause_s)
        self._book.at(aside.until_s, lambda _: self._try_again(stage, aside))
        if before is None or before.mistake.where != mistake.where:  # Texts may have numbers that change.
            named = f"stage {stage.spec.name!r} of job" if stage.spec.name else "job"
            self._book.warn(
                f"{named} {stage.job.id} is set aside, as the policy cannot say what its tasks cost: {mistake.error} "
                f"({mistake.where}); it is tried again after {pause_s:g} s, and later ever more seldom"
            )

    def why(self, stage: StageState, now_s: float) -> str:
        """Why the stage is left out; "" if it is not."""
        aside = self._stages.get(stage)
        if aside is None or not aside.waits:
            return ""
        after_s = max(0.0, aside.until_s - now_s)
        return (
            f"the policy cannot say what its tasks cost, and is asked again in {after_s:.0f} s: {aside.mistake.error}"
        )

    def forget(self, stage: StageState) -> None:
        """Nothing of the stage is to be placed."""
        self._stages.pop(stage, None)

    def _try_again(self, stage: StageState, aside: _Aside) -> None:
        if self._stages.get(stage) is aside:
            aside.waits = False
            self._again(stage)
