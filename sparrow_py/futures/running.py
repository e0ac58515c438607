"""Whether tasks run: schedulers are asked when somebody wants to know, so that it costs nothing where nobody does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from sparrow_py.futures.late_event import LateEvent
from sparrow_py.wire.messages import NUMBERS_PER_MESSAGE_MAX

FRESH_S = 0.1
"""An answer is good for so long: who asks again and again has the scheduler asked so often."""
ANSWER_TIMEOUT_S = 1.0
"""An answer is waited for so long; a scheduler that is stopped gives none."""
QUESTIONS_MAX = 64
"""Questions of one job whose answers are kept; with more, those that are not fresh go."""


class Pending(Protocol):
    """A task's future."""

    def is_pending(self) -> bool:
        """Whether the task is neither done nor known to run."""


class AskableJob(Protocol):
    """A job whose scheduler can be asked: `client.Job`."""

    @property
    def futures(self) -> Sequence[Pending]:
        """One for each task."""

    def ask_placed(self, tasks: list[int], answered: Callable[[], None]) -> bool:
        """Ask the scheduler which of these tasks have left the queue. `answered` is called when their futures know, or
        when there is nobody to ask; False if the client is closed, and nobody calls it."""

    def runs_here(self) -> bool:
        """Whether the caller is on the loop of the job's client."""


class _Question:
    """Which of some tasks have left the queue."""

    __slots__ = ("answered", "fresh_until_s")

    def __init__(self) -> None:
        self.answered = LateEvent()
        self.fresh_until_s = time.monotonic() + FRESH_S


class WhetherRunning:
    """Which tasks of one job run. A question is about many neighbouring tasks: whoever looks at one future looks at
    others, too."""

    def __init__(self, job: AskableJob) -> None:
        self._job = job
        self._questions: dict[int, _Question] = {}
        """By the number of the tasks' block, of `NUMBERS_PER_MESSAGE_MAX` tasks each."""

    def find_out(self, task: int) -> None:
        """Return when what is known of the task is fresh, or cannot be had. Of any thread.

        The client's own thread does not wait: what it asks for is known later.
        """
        block = task // NUMBERS_PER_MESSAGE_MAX
        question = self._questions.get(block)
        if question is None or time.monotonic() >= question.fresh_until_s:
            question = self._new_question(block)
            if not self._job.ask_placed(self._pending_of(block), question.answered.set):
                return
        if not self._job.runs_here():
            question.answered.wait(ANSWER_TIMEOUT_S)

    def _new_question(self, block: int) -> _Question:
        if len(self._questions) >= QUESTIONS_MAX:
            now_s = time.monotonic()
            for old, question in list(self._questions.items()):
                if now_s >= question.fresh_until_s:
                    self._questions.pop(old, None)
        question = self._questions[block] = _Question()
        return question

    def _pending_of(self, block: int) -> list[int]:
        """The tasks of the block that are neither done nor known to run."""
        first, futures = block * NUMBERS_PER_MESSAGE_MAX, self._job.futures
        tasks = range(first, min(first + NUMBERS_PER_MESSAGE_MAX, len(futures)))
        return [task for task in tasks if futures[task].is_pending()]
