"""What the book tells whoever finds nodes for tasks. The book knows no more of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scheduler.book.jobs import Attempt, StageState
    from scheduler.book.nodes import Node
    from sparrow_py.wire import messages as m


class Placing(Protocol):
    """Finds nodes for the tasks of stages."""

    name: str
    """The plane's, as `Welcome`, `Lead` and jobs name it: `SPARROW` or `FLOW` of `messages`."""

    def stage_came(self, stage: StageState) -> None:
        """A job with this stage has come; its tasks follow. `stage.plan` is for what is kept of it."""

    def tasks_unplaced(self, stage: StageState, now_s: float) -> None:
        """Find nodes for the stage's unplaced tasks. There may be none; and as long as the stage is not open, the tasks
        must wait: this is called again when it opens."""

    def tasks_withdrawn(self, stage: StageState) -> None:
        """Some of the stage's unplaced tasks need no place any more, and some still do."""

    def none_unplaced(self, stage: StageState, now_s: float) -> None:
        """The stage has no unplaced task, or not until others arrive (`stage.complete`)."""

    def stage_left(self, stage: StageState, now_s: float) -> None:
        """The stage's job is here no more, and nothing of it is to be placed."""

    def memories_known(self, stage: StageState, memories: Collection[str], now_s: float) -> None:
        """The client knows of the nodes with these memories (`Node.memory`): tasks of the stage may start there now."""

    def adopted(self, attempt: Attempt) -> None:
        """An attempt that another scheduler started is this one's from now on. (Its task may not have waited here.)"""

    def attempt_reported(self, attempt: Attempt, report: m.Report) -> None:
        """An attempt has ended, as its node reports; its task is about to be settled or to start again."""

    hears_reports: bool
    """Whether `attempt_reported` is to be called, which costs a call for every task."""

    def handed_back(self, attempt: Attempt, node: Node, now_s: float) -> None:
        """A node does not start a task that was launched there. The task is about to be unplaced again."""

    def preempted(self, attempt: Attempt, node: Node, service_s: float, now_s: float) -> None:
        """A node has stopped an attempt to make room, after so long. The task is about to be unplaced again."""
