"""What batch sampling keeps of a stage: its reservations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.book.waiting_stages import group_of
from scheduler.sampling.locality import Locality

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState


class Ticket:
    """A group of reservations, owned by one stage at a time."""

    __slots__ = ("id", "live", "stage")

    def __init__(self, ticket_id: int, stage: StageState) -> None:
        self.id = ticket_id
        self.stage = stage
        self.live: dict[str, int] = {}
        """Node id to reservations queued there, as far as this scheduler knows."""


class StagePlan:
    """The `plan` of a stage."""

    __slots__ = (
        "asked_too_soon", "group", "lapse_awaited", "live", "locality", "overtaken", "own_ticket", "probe_ratio",
        "promised", "promised_at_s", "pushes", "tickets", "unasked",
    )  # fmt: skip

    def __init__(self, stage: StageState) -> None:
        spec = stage.spec
        self.group = group_of(stage)
        """Its reservations may pass to stages of the same group, and theirs to it."""
        self.locality: Locality | None = None
        if spec.local:
            self.locality = stage.preferences = Locality()
        self.probe_ratio = spec.probe_ratio
        """The job's own, or what the scheduler has raised it to."""
        self.tickets: dict[int, Ticket] = {}
        self.own_ticket: Ticket | None = None
        """The ticket of the reservations that are made for it."""
        self.live = 0
        """Live reservations over all tickets."""
        self.promised = 0
        """Reservations on idle nodes that are about to ask, about."""
        self.promised_at_s = 0.0
        """When the last of them was made."""
        self.lapse_awaited = False
        """Whether a timer waits for the time at which those nodes should have asked."""
        self.unasked = 0
        """Reservations on idle nodes, about, that have not led to an ask."""
        self.pushes = False
        """Whether its tasks may go straight to slots that are known to be free (`pushing`)."""
        self.overtaken = 0
        """Tasks of later stages that went before its own where their data are (`near_data`)."""
        self.asked_too_soon: dict[str, int] = {}
        """Node to the slots for which it asked while the job's client was yet to know of it: it got no task."""
