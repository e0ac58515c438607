"""What all parts of the book share: which jobs and nodes are here, the counts, the timers, and where effects go."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from scheduler.book.admission import Admission
from scheduler.book.counters import Counters
from scheduler.book.history import History
from scheduler.book.nodes import Nodes
from scheduler.book.setbacks import Setbacks
from sparrow_py.timing.timers import Timers

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState, StageState
    from scheduler.book.placing import Placing
    from scheduler.options import SchedulerOptions
    from sparrow_py.wire import messages as m


class Messenger(Protocol):
    """Where messages go. Those to peers that are gone may be dropped."""

    def to_node(self, node_id: str, message: m.Message) -> None:
        """Send to a node monitor."""

    def to_client(self, client: str, message: m.Message) -> None:
        """Send to a client."""


class Ledger:
    """See the module's docstring. It decides nothing."""

    placing: Placing
    """Who finds nodes for tasks."""

    def __init__(self, options: SchedulerOptions, messenger: Messenger) -> None:
        self.options = options
        self.to_node = messenger.to_node
        self.to_client: Callable[[str, m.Message], None] = messenger.to_client
        """`Deliveries` stands before it in a book."""
        self.counters = Counters()
        self.nodes = Nodes()
        self.jobs: dict[str, JobState] = {}
        self.admission = Admission(options.unplaced_tasks_max, options.held_bytes_max)
        self.timers = Timers()
        self.history = History(options.history_len_max)
        self.note = self.history.note
        self.setbacks = Setbacks()
        self.draining = False
        """Whether no further jobs are taken."""
        self.why_no_jobs: Callable[[], str] = _takes_jobs
        """Why jobs are for another scheduler, which leads the plane; empty if they are for this one."""
        self.lead_epoch = 0
        """The plane's lead epoch here, which placed tasks say; 0 on planes without a leader."""

    def is_here(self, job: JobState) -> bool:
        """Whether the job has not ended, and was not given up."""
        return self.jobs.get(job.id) is job

    def holds(self, job: JobState, change: int) -> bool:
        """The job makes this scheduler hold so many bytes more (or less); False if that is too many for its user."""
        job.held_bytes += change
        return self.admission.holds(job.user, change)

    def at_stage(self, at_s: float, stage: StageState, action: Callable[[StageState, float], None]) -> None:
        """Call `action` with the stage and the time, if its job is still here then; meanwhile nothing keeps it."""
        job, index = weakref.ref(stage.job), stage.index

        def here() -> JobState | None:
            found = job()
            return found if found is not None and self.jobs.get(found.id) is found else None

        def act(now_s: float) -> None:
            found = here()
            if found is not None:
                action(found.stages[index], now_s)

        self.timers.at(at_s, act, lambda: here() is not None)


def _takes_jobs() -> str:
    """As on planes that have no leader."""
    return ""
