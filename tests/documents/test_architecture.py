"""What ARCHITECTURE.md shows of tables in the code is what stands there."""

from __future__ import annotations

import re

from scheduler.leading import TRANSITIONS, State
from tests.support.documents import section

NAMES = {state: state.name.lower().replace("_", " ") for state in State}


def test_the_picture_of_the_lead_has_the_transitions_of_the_table() -> None:
    shown: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (.*) \|$", section("ARCHITECTURE.md", "Leaders"), re.M):
        states, _, follow = row.split(" | ")
        if set(states.split(", ")) <= set(NAMES.values()):
            after = {name for name in NAMES.values() if re.search(rf"\b{name}\b", follow)}
            shown |= dict.fromkeys(states.split(", "), after)
    assert shown == {NAMES[state]: {NAMES[one] for one in after} for state, after in TRANSITIONS.items()}
