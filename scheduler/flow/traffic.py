"""What tasks receive over the network, judged by what their nodes do: nobody measures that of a process cheaply.

A node says what it receives. While all placed tasks that it has are of one stage, and no sampled ones run there, what
it receives beyond what it did when it last had none is theirs, in equal parts. That is wrong while others' traffic
there changes; the knowledge base forgets it with the tasks that follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.flow.profiles import NET, Profiles
from scheduler.flow.stage_plan import stage_name

if TYPE_CHECKING:
    from scheduler.book.nodes import Node


class Traffic:
    """See the module's docstring. What is learnt goes into the profiles."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._without_tasks: dict[str, float] = {}
        """By node: what it received when it had no placed task."""

    def told(self, node: Node) -> None:
        """The node has said what it measures."""
        load = node.load
        if load is None or load.net_in_bytes_per_s is None or load.short:
            return
        if not node.attempts:
            self._without_tasks[node.id] = load.net_in_bytes_per_s
            return
        stages = {attempt.stage for attempt in node.attempts}
        quiet = self._without_tasks.get(node.id)
        if len(stages) > 1 or quiet is None or load.lane_slots - load.lane_free != len(node.attempts):
            return  # Whose it is nobody can tell; or some have just been sent, and do nothing yet.
        (stage,) = stages
        rate = max(0.0, load.net_in_bytes_per_s - quiet) / len(node.attempts)
        self._profiles.used(stage.job.user, stage.spec.app, stage_name(stage), {NET: rate})

    def gone(self, node_id: str) -> None:
        """The node is not here any more."""
        self._without_tasks.pop(node_id, None)
