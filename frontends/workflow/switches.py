"""The rules that `--off` switches off, by name: rewrites of workflows, and what makes generated code fast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from frontends.workflow.engines.base import ALL_RULES, Rules
from frontends.workflow.rewrites.rules import ALL as ALL_REWRITES
from frontends.workflow.rewrites.rules import Rewrite
from sparrow_py.errors import InvalidRequest

REWRITES_OFF = "rewrites"
"""Switches all rewrites off."""
_OF_CODE = {name.replace("_", "-"): name for name in Rules.names()}
_OF_WORKFLOWS = {one.value: one for one in Rewrite}
NAMES = (*_OF_CODE, *_OF_WORKFLOWS, REWRITES_OFF)


@dataclass(frozen=True, slots=True)
class Switches:
    """What is on. rules: of generators; rewrites: of workflows."""

    rules: Rules = ALL_RULES
    rewrites: frozenset[Rewrite] = ALL_REWRITES

    @classmethod
    def all_but(cls, off: Iterable[str]) -> Switches:
        """Everything but the rules of these names; `InvalidRequest` for a name that there is not."""
        found = cls()
        for name in off:
            if name == REWRITES_OFF:
                found = replace(found, rewrites=frozenset())
            elif name in _OF_CODE:
                found = replace(found, rules=found.rules.off(_OF_CODE[name]))
            elif name in _OF_WORKFLOWS:
                found = replace(found, rewrites=found.rewrites - {_OF_WORKFLOWS[name]})
            else:
                raise InvalidRequest("off", name, ", ".join(NAMES))
        return found
