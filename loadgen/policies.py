"""What jobs may state as their policy, and which schedulers a cluster has for that."""

from __future__ import annotations

from sparrow_py.errors import InvalidOption

ALTRUISTIC = "altruistic"
STATED = ("sparrow", "flow", ALTRUISTIC, "auto")
"""What jobs may state."""
PEERS = ("drf", "tetris", "tetris-packing", "tetris-fair", "capacity", "sjf", "sjf-by-work", "srtf")
"""Other schedulers that the altruistic plane may have, for comparison (docs/altruistic.md): jobs then state policy
altruistic."""
_LEADS = {"flow": "flow", "auto": "flow", ALTRUISTIC: ALTRUISTIC}


def check_policy(policy: str) -> None:
    """`InvalidOption` unless it is one that jobs may state, or a scheduler of the altruistic plane, with settings after
    slashes or not; these are checked by the scheduler."""
    if policy not in STATED and policy.partition("/")[0] not in (ALTRUISTIC, *PEERS):
        raise InvalidOption("policy", policy, f"{', '.join(STATED)}; or, of the altruistic plane, {', '.join(PEERS)}")


def stated(policy: str) -> str:
    """What jobs state for this one."""
    return ALTRUISTIC if policy and policy not in STATED else policy


def leads(policy: str) -> str:
    """The policy of a scheduler that leads while jobs have this one; empty: none."""
    return _LEADS.get(stated(policy), "")
