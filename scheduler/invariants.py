"""What must hold of a stage after every event (guarantee 5)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.jobs import PLACED, SETTLED, UNPLACED, Attempt, StageState, Ticket
from scheduler.nodes import Nodes


def check_stage(
    stage: StageState, nodes: Nodes, tickets: Mapping[int, Ticket], attempts: Mapping[int, Attempt]
) -> str | None:
    """What is wrong with the stage, or None."""
    counts = [stage.states.count(state) for state in (UNPLACED, PLACED, SETTLED)]
    expected = [stage.unplaced, len(stage.attempts), stage.settled]
    if counts != expected:
        return f"tasks unplaced, placed, settled are {counts}, counted as {expected}"
    live = sum(sum(ticket.live.values()) for ticket in stage.tickets.values())
    if live != stage.live:
        return f"{live} live reservations, counted as {stage.live}"
    for ticket in stage.tickets.values():
        if ticket.stage is not stage or tickets.get(ticket.id) is not ticket:
            return f"ticket {ticket.id} is not this stage's"
        for node_id, count in ticket.live.items():
            if count < 1 or node_id not in nodes or ticket.id not in nodes[node_id].tickets:
                return f"ticket {ticket.id} has {count} reservations at node {node_id}, which does not"
    if not stage.unplaced and stage.complete and stage.tickets:
        return "nothing is unplaced, but reservations are left"
    if stage.unplaced > stage.live and stage.probe_at_s is None:
        eligible = set(nodes.eligible(stage.spec.app, stage.spec.runtime)) - stage.refused_by
        if eligible:
            return f"{stage.unplaced} unplaced tasks, {stage.live} live reservations, no re-probe pending"
    for task, attempt_id in stage.attempts.items():
        attempt = attempts.get(attempt_id)
        if attempt is None or attempt.task != task or attempt_id not in nodes[attempt.node_id].attempts:
            return f"task {task} is placed as attempt {attempt_id}, which its node does not have"
    return None
