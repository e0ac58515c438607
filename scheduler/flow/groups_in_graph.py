"""Groups of tasks with limits in common, as the graph of a cluster knows them, and where tasks of them run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from scheduler.flow.policies.policy import Group, Task

ANY_NUMBER = (1 << 31) - 1
"""Of tasks that a machine may have."""


class GroupsInGraph:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.known: dict[str, Group] = {}
        self.members: dict[str, dict[str, None]] = {}
        """By group: its tasks in the graph."""
        self._running: dict[str, Counter[str]] = {}
        """By group: tasks in the graph that run, by machine."""
        self._changed: set[str] = set()
        """Groups with other limits, or of which other tasks run."""

    def tell(self, name: str, group: Group | None) -> bool:
        """None: there is no such group. Whether its tasks are of another class now."""
        before = self.known.get(name)
        if group == before:
            return False
        if group is None:
            del self.known[name]
        else:
            self.known[name] = group
        self._changed.add(name)
        return before is None or group is None or replace(before, running={}) != replace(group, running={})

    def take_changed(self) -> set[str]:
        """Groups that have other room on machines than when this was asked last: also those near such that changed."""
        changed, self._changed = self._changed, set()
        return changed | {name for name, group in self.known.items() if group.together_with in changed}

    # ---- tasks -------------------------------------------------------------------------------

    def joined(self, task: Task) -> None:
        """The task is in the graph."""
        if task.group in self.known:
            self.members.setdefault(task.group, {})[task.name] = None

    def left(self, task: Task) -> None:
        """It is no more."""
        members = self.members.get(task.group)
        if members is not None:
            members.pop(task.name, None)
            if not members:
                del self.members[task.group]

    def runs(self, group: str, machine: str) -> None:
        """A task in the graph runs there."""
        if group in self.known:
            self._running.setdefault(group, Counter())[machine] += 1
            self._changed.add(group)

    def stopped(self, group: str, machine: str) -> None:
        """One does no more."""
        own = self._running.get(group)
        if own is None:
            return
        own[machine] -= 1
        if own[machine] <= 0:
            del own[machine]
        if not own:
            del self._running[group]
        self._changed.add(group)

    # ---- limits ------------------------------------------------------------------------------

    def limits_of(self, task: Task) -> str:
        """The task's group, if that limits where its tasks go; else ""."""
        group = self.known.get(task.group)
        if group is not None and (group.max_per_machine or group.max_per_rack or group.together_with):
            return task.group
        return ""

    def is_all_or_nothing(self, name: str) -> bool:
        """Whether a group's tasks go together: a gang, or all on one machine; not beside those that run already."""
        group = self.known.get(name)
        return group is not None and (group.gang > 0 or group.together_with == name) and not self.has_running(name)

    def room(self, name: str, machine: str) -> int:
        """How many more tasks of a group a machine may have, but for its rack's limit."""
        group = self.known.get(name)
        room = ANY_NUMBER
        if group is None:  # It has gone, and its class goes with the round.
            return room
        if group.max_per_machine:
            room = group.max_per_machine - self.runs_of(name, machine)
        if group.max_per_rack:
            room = min(room, group.max_per_rack)
        if group.together_with and not self.runs_of(group.together_with, machine):
            room = 0
        return max(0, room)

    def runs_of(self, name: str, machine: str) -> int:
        """How many tasks of a group a machine has."""
        group = self.known.get(name)
        own = self._running.get(name)
        return (group.running.get(machine, 0) if group else 0) + (own[machine] if own else 0)

    def has_running(self, name: str) -> bool:
        """Whether a group has tasks that run anywhere."""
        group, own = self.known.get(name), self._running.get(name)
        return bool((group and any(group.running.values())) or (own and any(own.values())))
