"""What earlier runs of stages have shown, and what of that no file has yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.altruistic.known_stages import STAGES_MAX, STAGES_PER_USER_MAX, KnownStages, StageKey
from scheduler.altruistic.runs import Figures, Run


class StageHistory:
    """Of all stages that a scheduler knows. `on_news` is called when there is news, and was none."""

    def __init__(
        self,
        remembered: Iterable[tuple[StageKey, Figures]] = (),
        on_news: Callable[[], None] = lambda: None,
        stages_max: int = STAGES_MAX,
        per_user_max: int = STAGES_PER_USER_MAX,
    ) -> None:
        self._limits = stages_max, per_user_max
        self._known, self._news = KnownStages(*self._limits), KnownStages(*self._limits)
        self._on_news = on_news
        for key, figures in remembered:
            self._known.ran(key, figures)

    def __len__(self) -> int:
        return len(self._known)

    def of(self, key: StageKey | None) -> Figures:
        """What a stage's runs have shown; nothing if none is remembered."""
        return (self._known.of(key) if key is not None else None) or {}

    def ended(self, key: StageKey | None, run: Run, tasks: int) -> None:
        """A stage of so many tasks has ended. It is forgotten if less than half of them have finished: those that
        finish before a job is cancelled are its shortest."""
        if key is None or not run.tasks or 2 * run.tasks < tasks:
            return
        was_none = not self._news
        for stages in (self._known, self._news):
            stages.ran(key, run.as_one())
        if was_none:
            self._on_news()

    def take_news(self) -> KnownStages:
        """What has ended since this was asked last."""
        taken, self._news = self._news, KnownStages(*self._limits)
        return taken

    def give_back(self, taken: KnownStages) -> None:
        """What was taken is news still, and older than what has come since."""
        for key, figures in self._news:
            taken.ran(key, figures)
        self._news = taken
