"""The nodes and arcs of a cluster under a policy, kept as tasks and machines come, change and go.

From each machine to the sink as many units as it has slots; from each task to its user's aggregator of waiting tasks,
and from that to the sink; all else as the policy says. Policies know nothing of which machines a task may go to and
fits: tasks that are alike in that are a class, and a class has copies of the policy's aggregators of its own, whose
arcs lead to machines that it may go to. Where resources or limits of a group bind, they lead there through a door: a
node of the class and the machine, with one arc to the machine, whose capacity is how many tasks of the class fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from scheduler.flow.ageing import NO_ARC, Ageing
from scheduler.flow.changes import Changes
from scheduler.flow.cluster_changes import Gone
from scheduler.flow.fitting import copies
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.network import FIRST_IN, NONE
from scheduler.flow.pipes import Pipe, Pipes
from scheduler.flow.policies.policy import (
    ANY_MACHINE,
    Aggregator,
    ArcTo,
    Cluster,
    FollowsMachines,
    ForgetsAggregators,
    Group,
    Machine,
    Policy,
    Task,
    TaskCosts,
    UnitCost,
)
from scheduler.flow.problem import Integers, ProblemError
from scheduler.flow.task_block import Aged, TaskBlock, grown

WAITING_MAX = (1 << 31) - 1
"""Tasks of a user that may wait."""
CLASSES_MAX = 256
"""Beyond these, tasks have no arcs of their class: whether they fit is looked at when they have been placed."""
CLASSES_KEPT = 32
"""Without tasks, for those that come next."""
AGGREGATORS_KEPT = 64
"""To which nothing leads any more."""
PRIORITY_COST = 1000
"""How much dearer waiting is for each step of priority."""
PRIORITY_MAX = 10_000
PREFERRED_GAIN = 10
"""How much cheaper a preferred machine is than the best that the policy says."""
STAY_GAIN = 1
"""How much cheaper staying is than the policy says: so nothing migrates between equal places."""


@dataclass(slots=True, eq=False)
class MachineNode:
    """A machine in the graph."""

    machine: Machine
    node: int
    slots: Pipe
    """To the sink."""
    tasks: set[str] = field(default_factory=set)
    """Those that run there, if the graph keeps such."""
    used: dict[str, float] = field(default_factory=dict)
    """Resources that these take."""

    def left(self) -> Mapping[str, float]:
        """Resources that no task in the graph has."""
        if not self.used:
            return self.machine.free
        return {name: amount - self.used.get(name, 0.0) for name, amount in self.machine.free.items()}


@dataclass(slots=True, eq=False)
class Door:
    """By which the tasks of a class come to a machine."""

    node: int
    arc: int
    capacity: int


@dataclass(slots=True, eq=False)
class AggregatorNode:
    """A class's copy of an aggregator."""

    node: int
    pipes: dict[tuple[str | Aggregator, int], Pipe] = field(default_factory=dict)
    """By where it leads, and the how manieth pipe to there it is."""


Key = tuple[str, tuple[tuple[str, float], ...], str]


@dataclass(slots=True, eq=False)
class TaskClass:
    """Tasks that may go to the same machines, with equal demands, and limits in common."""

    kind: str
    demand: Mapping[str, float]
    group: str
    tasks: int = 0
    doors: dict[str, Door] = field(default_factory=dict)
    aggregators: dict[Aggregator, AggregatorNode] = field(default_factory=dict)

    @property
    def has_doors(self) -> bool:
        """Whether more limits its tasks than machines' slots and their kind."""
        return bool(self.demand or self.group)


@dataclass(slots=True, eq=False)
class TaskNode:
    """A task in the graph."""

    task: Task
    node: int
    kind: TaskClass
    waiting_arc: int
    asks_again: Collection[str] | None
    ages: bool
    """Whether the policy has said how its costs change with time."""
    waiting: int = 0
    """The price of waiting when it was asked for last."""
    is_sent: bool = True
    """Whether its unit is in the flow: those of gangs are not, until the gang is tried."""


@dataclass(slots=True, eq=False)
class UserNode:
    """A user's aggregator of waiting tasks, and its arc to the sink."""

    node: int
    arc: int
    tasks: int = 0
    """Those in the flow."""
    minimum: int = 0


class ClusterGraph:
    """See the module's docstring. All changes go into `changes`, which the owner applies."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.follows = policy if isinstance(policy, FollowsMachines) else None
        self.forgets = policy if isinstance(policy, ForgetsAggregators) else None
        self.graph = FlowGraph()
        self.sink = self.graph.add_node(kind=Kind.SINK)
        self.changes = Changes(self.graph, self.sink)
        self.pipes = Pipes(self.changes)
        self.machines: dict[str, MachineNode] = {}
        self.racks: dict[str, set[str]] = {}
        self.tasks: dict[str, TaskNode] = {}
        self.users: dict[str, UserNode] = {}
        self.kinds: dict[str, frozenset[str] | None] = {}
        self.outside: dict[str, dict[str, Task]] = {}
        """By kind that has no machine: tasks that wait, and are no part of the graph."""
        self._of_kind: dict[str, dict[str, None]] = {}
        """By kind: its tasks in the graph."""
        self._kinds_opened: dict[str, None] = {}
        """Kinds that had no machine, and have one now: their tasks are to come in."""
        self._kinds_changed: set[str] = set()
        """Kinds that have other machines."""
        self._kinds_gone: set[str] = set()
        """Kinds that are forgotten as soon as no task is of them."""
        self._outside_kind: dict[str, str] = {}
        """By task outside: its kind."""
        self.groups: dict[str, Group] = {}
        self.members: dict[str, dict[str, None]] = {}
        """By group that has limits: its tasks."""
        self.classes: dict[Key, TaskClass] = {}
        self.by_node: dict[int, str] = {}
        """Tasks and machines."""
        self.waiting = Ageing()
        self.staying = Ageing()
        self.at: Integers = np.full(64, NONE, np.int64)
        """By node: of a task that runs the machine's node, else NONE."""
        self.now_s = 0.0
        self.priority_min = 0
        self.slots = 0
        """Of all machines."""
        self._known_machines: dict[str, Machine] = {}
        self._known_tasks: dict[str, Task] = {}
        self._structure: set[str] = set()
        """Machines and racks that came, went, or changed more than their slots, resources and loads."""
        self._changed: dict[str, None] = {}
        """Machines that changed nothing else."""
        self._group_running: dict[str, Counter[str]] = {}
        """By group: tasks in the graph that run, by machine."""
        self._groups_changed: set[str] = set()
        self._asked_each_round: dict[str, None] = {}
        self._to_refresh: set[str] = set()
        """Tasks that ran, and do not any more; tasks of kinds that have other machines."""
        self._to_renew: set[str] = set()
        """Tasks that are of another class than they were."""
        self._aggregators_kept = AGGREGATORS_KEPT
        self._seen = False
        self._has_seen_changes = False
        """Whether machines are as they were when the policy was shown all of them."""

    # ---- what has changed

    def remove_machine(self, name: str) -> None:
        """With the arcs to it; its tasks do not run any more. An unknown one is ignored."""
        gone = self.machines.pop(name, None)
        if gone is None:
            return
        for task in list(gone.tasks):
            self._stops(self.tasks[task])
        self.pipes.forget(gone.slots)
        self.changes.remove_node(gone.node)
        del self.by_node[gone.node]
        for kind in self.classes.values():
            door = kind.doors.pop(name, None)
            if door is not None:
                self.changes.remove_node(door.node)
        self.racks[gone.machine.rack].discard(name)
        if not self.racks[gone.machine.rack]:
            del self.racks[gone.machine.rack]
        self.slots -= gone.machine.slots
        del self._known_machines[name]
        self._changed.pop(name, None)
        self._structure |= {name, gone.machine.rack}

    def set_machine(self, machine: Machine) -> None:
        """A new one, or one that has changed."""
        if machine.slots < 0:
            raise ProblemError(f"slots of {machine.name} are {machine.slots}; allowed are numbers from 0")
        known = self.machines.get(machine.name)
        if known is not None and (known.machine.rack, known.machine.attributes) == (machine.rack, machine.attributes):
            self.slots += machine.slots - known.machine.slots
            known.machine = machine
            self._known_machines[machine.name] = machine
            self._changed[machine.name] = None
            return
        self._structure |= {machine.name, machine.rack}
        self._known_machines[machine.name] = machine
        if known is not None:
            self._structure.add(known.machine.rack)
            self.racks[known.machine.rack].discard(machine.name)
            if not self.racks[known.machine.rack]:
                del self.racks[known.machine.rack]
            self.slots -= known.machine.slots
            known.machine = machine
            self._changed[machine.name] = None
        else:
            node = self.changes.add_node(0, Kind.MACHINE)
            self.by_node[node] = machine.name
            self.machines[machine.name] = MachineNode(machine, node, self.pipes.add(node, self.sink, 0, 0))
            self._changed[machine.name] = None
        self.racks.setdefault(machine.rack, set()).add(machine.name)
        self.slots += machine.slots

    def set_kind(self, name: str, machines: Collection[str] | Gone | None) -> None:
        """Which machines tasks of a kind may go to; None: all. Without any its tasks wait outside the graph."""
        if isinstance(machines, Gone):
            self._kinds_gone.add(name)
            return
        self._kinds_gone.discard(name)
        allowed = None if machines is None else frozenset(machines)
        before = self.kinds.get(name)
        if allowed == before:
            return
        self.kinds[name] = allowed
        self._kinds_changed.add(name)
        if self.is_closed(name):
            self._close(name)
            return
        was_closed = before is not None and not before
        if was_closed:
            self._kinds_opened[name] = None
        if was_closed or (before is None) != (allowed is None):
            self._to_renew.update(self._of_kind.get(name, ()))
        else:
            self._to_refresh.update(self._of_kind.get(name, ()))

    def is_closed(self, kind: str) -> bool:
        """Whether tasks of the kind may go nowhere."""
        allowed = self.kinds.get(kind)
        return allowed is not None and not allowed

    def _close(self, kind: str) -> None:
        """Its tasks leave the graph, but those that run, which have no ways to other machines any more."""
        self._kinds_opened.pop(kind, None)
        for name in list(self._of_kind.get(kind, ())):
            task = self.tasks[name].task
            if task.runs_on is None:
                self.remove_task(name)
                self._put_outside(task)
            else:
                self._to_renew.add(name)

    def _put_outside(self, task: Task) -> None:
        self.outside.setdefault(task.kind, {})[task.name] = task
        self._outside_kind[task.name] = task.kind

    def _take_from_outside(self, name: str) -> Task | None:
        kind = self._outside_kind.pop(name, None)
        if kind is None:
            return None
        tasks = self.outside[kind]
        task = tasks.pop(name)
        if not tasks:
            del self.outside[kind]
        return task

    def is_outside(self, name: str) -> bool:
        """Whether the task waits outside the graph."""
        return name in self._outside_kind

    @property
    def tasks_outside(self) -> int:
        """How many wait there."""
        return len(self._outside_kind)

    def take_opened(self) -> list[Task]:
        """Tasks that were outside and are to be added, as their kinds have machines now."""
        opened, self._kinds_opened = self._kinds_opened, {}
        tasks = [task for kind in opened for task in self.outside.get(kind, {}).values()]
        for task in tasks:
            self._take_from_outside(task.name)
        return tasks

    def set_group(self, name: str, group: Group | None) -> None:
        """A group's limits, and where its tasks run that are no part of the graph; None: there is no such group."""
        before = self.groups.get(name)
        if group == before:
            return
        if group is None:
            del self.groups[name]
        else:
            self.groups[name] = group
        self._groups_changed.add(name)
        if before is None or group is None or replace(before, running={}) != replace(group, running={}):
            self._to_renew.update(task.task.name for task in self.tasks.values() if task.task.group == name)

    def remove_task(self, name: str) -> None:
        """An unknown one is ignored."""
        gone = self.tasks.get(name)
        if gone is None:
            self._take_from_outside(name)
            return
        if gone.task.runs_on is not None:
            self._stops(gone)
        del self.tasks[name]
        del self._known_tasks[name]
        del self.by_node[gone.node]
        self.changes.remove_node(gone.node)
        self.waiting.drop(gone.node)
        self._leave_user(gone)
        gone.kind.tasks -= 1
        of_kind = self._of_kind[gone.task.kind]
        del of_kind[name]
        if not of_kind:
            del self._of_kind[gone.task.kind]
        self._asked_each_round.pop(name, None)
        self._to_refresh.discard(name)
        self._to_renew.discard(name)
        if gone.task.group in self.members:
            members = self.members[gone.task.group]
            members.pop(name, None)
            if not members:
                del self.members[gone.task.group]

    def add_tasks(self, tasks: Iterable[Task]) -> None:
        """New ones, or such that have changed, which are as new then; all at once, as fast as arrays are. All machines
        are known, and the policy has seen them (`see`)."""
        coming = [task for task in {task.name: task for task in tasks}.values() if self._comes_in(task)]
        if not coming:
            return
        self._note_priority(min(task.priority for task in coming))
        block, waiting, staying = TaskBlock(), Aged(), Aged()
        made = [
            self._add_task(task, node, block, waiting, staying)
            for task, node in zip(coming, self.graph.node_room.take_many(len(coming)).tolist(), strict=True)
        ]
        arcs = block.write(self.changes, self.sink)
        for one, arc in zip(made, waiting.write(self.waiting, arcs, self.now_s).tolist(), strict=True):
            one.waiting_arc = arc
        staying.write(self.staying, arcs, self.now_s)

    def _comes_in(self, task: Task) -> bool:
        """Take out what is known of the task by now. Whether it comes into the graph: it may wait outside."""
        self.remove_task(task.name)
        if task.runs_on is None and self.is_closed(task.kind):
            self._put_outside(task)
            return False
        return True

    def _add_task(self, task: Task, node: int, block: TaskBlock, waiting: Aged, staying: Aged) -> TaskNode:
        """Note a task with this node, and gather its arcs: that of waiting first."""
        place = None
        if task.runs_on is not None:
            place = self.machines.get(task.runs_on)
            if place is None:
                task = replace(task, runs_on=None)
            elif task.since_s is None:
                task = replace(task, since_s=self.now_s)
        self._of_kind.setdefault(task.kind, {})[task.name] = None
        if task.group in self.groups:
            self.members.setdefault(task.group, {})[task.name] = None
        is_sent = place is not None or not self.is_all_or_nothing(task.group)
        kind, user = self._class(task), self._user(task.user)
        kind.tasks += 1
        user.tasks += is_sent
        costs = self._ask(task)
        price = self._waiting_cost(costs, task)
        block.add_node(node, 1 if is_sent else 0)
        made = TaskNode(task, node, kind, NO_ARC, costs.asks_again, costs.waiting_per_s is not None, price, is_sent)
        arc = block.add_arc(node, user.node, price)
        for head, cost in self._task_heads(made, costs):
            block.add_arc(node, head, cost)
        self.by_node[node] = task.name
        self.tasks[task.name] = made
        self._known_tasks[task.name] = task
        since_s = self.now_s - task.waited_s if task.since_s is None else task.since_s
        waiting.append(node, arc, price, 0.0 if place is not None else costs.waiting_per_s or 0.0, since_s)
        if place is not None:
            cost = self.running_cost(costs, task)
            staying.append(node, block.add_arc(node, place.node, cost), cost, -(costs.running_per_s or 0.0), since_s)
            self._takes_place(made, place)
        if costs.waiting_per_s is None or (place is not None and costs.running_per_s is None):
            self._asked_each_round[task.name] = None
        return made

    def _takes_place(self, task: TaskNode, place: MachineNode) -> None:
        """It runs there from now on: so much the less is left for others."""
        runs, name = task.task, place.machine.name
        place.tasks.add(runs.name)
        self.at = grown(self.at, task.node + 1, NONE)
        self.at[task.node] = place.node
        for resource, amount in runs.demand.items():
            place.used[resource] = place.used.get(resource, 0.0) + amount
        if runs.group in self.groups:
            self._group_running.setdefault(runs.group, Counter())[name] += 1
            self._groups_changed.add(runs.group)
        if runs.demand:
            self._changed[name] = None

    def run(
        self,
        name: str,
        machine: str,
        arc: int = NO_ARC,
        since_s: float | None = None,
        costs: TaskCosts | None = None,
    ) -> None:
        """A task runs there, as the running arc says, if there is one already; from now on, if nothing else is said.
        Unknown ones are ignored. `costs`: what the policy has said already."""
        outside = self._take_from_outside(name) if machine in self.machines else None
        if outside is not None:
            self.add_tasks([replace(outside, runs_on=machine, since_s=self.now_s if since_s is None else since_s)])
            return
        task = self.tasks.get(name)
        place = self.machines.get(machine)
        if task is None or place is None or task.task.runs_on == machine:
            return
        if task.task.runs_on is not None:
            self._stops(task)
        since_s = self.now_s if since_s is None else since_s
        runs = replace(task.task, runs_on=machine, since_s=since_s)
        costs = self._ask(runs) if costs is None else costs
        running = self.running_cost(costs, runs)
        if arc == NO_ARC:
            arc = self.changes.add_arc(task.node, place.node, running, 1)
        task.task = self._known_tasks[name] = runs
        self.send(task)
        self._takes_place(task, place)
        self.staying.add(task.node, arc, running, -(costs.running_per_s or 0.0), since_s, self.now_s)
        waiting = self._waiting_cost(costs, runs)
        self.waiting.add(task.node, task.waiting_arc, waiting, 0.0, since_s, self.now_s)
        self.changes.set_cost(task.waiting_arc, waiting)
        if costs.running_per_s is None:
            self._asked_each_round[name] = None

    def running_cost(self, costs: TaskCosts, task: Task) -> int:
        """What it costs to stay."""
        running = costs.running
        if task.runs_on in task.preferred:
            running = min(running, self._preferred_cost(costs))
        return running - STAY_GAIN

    def asked_to_run(self, name: str, machine: str) -> tuple[TaskCosts, int]:
        """What the policy says of a task if it ran there from now on, and what it would cost to stay."""
        task = replace(self.tasks[name].task, runs_on=machine, since_s=self.now_s, waited_s=0.0, ran_s=0.0)
        costs = self._ask(task)
        return costs, self.running_cost(costs, task)

    def send(self, task: TaskNode) -> None:
        """Its unit is in the flow from now on."""
        if not task.is_sent:
            task.is_sent = True
            self.changes.set_supply(task.node, 1)
            self.users[task.task.user].tasks += 1

    def withhold(self, task: TaskNode) -> None:
        """Its unit is not in the flow any more: it waits."""
        if task.is_sent:
            task.is_sent = False
            self.changes.set_supply(task.node, 0)
            self.users[task.task.user].tasks -= 1

    def is_all_or_nothing(self, name: str) -> bool:
        """Whether a group's tasks go together: a gang, or all on one machine; not beside those that run already."""
        group = self.groups.get(name)
        return group is not None and (group.gang > 0 or group.together_with == name) and not self.has_running(name)

    # ---- before a solve

    def see(self) -> None:
        """Show the policy the cluster, if it has to be asked again, and ask about what has changed."""
        structure, changed = self._structure, self._changed
        if structure or self.follows is None or not self._seen:
            self._seen = True
            structure.add(ANY_MACHINE)
            self._show()
            for name in changed:
                place = self.machines[name]
                self.pipes.change(place.slots, self.policy.machine_cost(place.machine), place.machine.slots)
        else:
            self._has_seen_changes = self._has_seen_changes and not changed
            for name in changed:
                self._follow(self.machines[name])
        for name in changed:
            self.fit_doors(name)
        self._refresh_tasks(structure, bool(changed) or self.follows is None)
        self._refresh_classes()
        self._structure, self._changed = set(), {}

    def _show(self) -> None:
        """Show the policy the cluster, and ask about all aggregators."""
        self._show_machines()
        for kind in self.classes.values():
            for aggregator in list(kind.aggregators):
                self._refresh(kind, aggregator)

    def _show_machines(self) -> None:
        self.policy.see(Cluster(self._known_machines, self._known_tasks))
        self._has_seen_changes = True

    def _refresh_classes(self) -> None:
        """Of kinds that have other machines."""
        changed, self._kinds_changed = self._kinds_changed, set()
        for key, kind in list(self.classes.items()) if changed else ():
            if kind.kind not in changed:
                continue
            if kind.tasks == 0:
                self._drop_class(self.classes.pop(key))
            else:
                for aggregator in list(kind.aggregators):
                    self._refresh(kind, aggregator)

    def see_tasks(self) -> None:
        """After tasks have been told: what they leave to others."""
        if self.follows is None:
            self._show()
        affected = self._groups_changed | {
            name for name, group in self.groups.items() if group.together_with in self._groups_changed
        }
        self._groups_changed = set()
        for kind in self.classes.values():
            if kind.group in affected:
                for name in kind.doors:
                    self._fit_door(kind, name)
        for name in self._changed:  # Tasks that were told to run there take resources.
            self.fit_doors(name)
        self._changed = {}

    def ask_again(self) -> None:
        """Of tasks whose costs change in a way that only the policy knows."""
        for name in self._asked_each_round:
            task = self.tasks[name]
            costs = self._ask(task.task)
            waiting = self._waiting_cost(costs, task.task)
            self.changes.set_cost(task.waiting_arc, waiting)
            self._age_waiting(task, costs, waiting)
            if task.task.runs_on is not None:
                running = self.running_cost(costs, task.task)
                arc = self.staying.arc(task.node)
                self.changes.set_cost(arc, running)
                rate = -(costs.running_per_s or 0.0)
                self.staying.add(task.node, arc, running, rate, task.task.since_s or 0.0, self.now_s)

    def age(self) -> None:
        """All costs that change with time, as of now: at once, and before other changes are made."""
        for ageing in (self.waiting, self.staying):
            arcs, costs = ageing.costs(self.now_s)
            if len(arcs):
                self.graph.set_costs(arcs, costs)

    def purge(self) -> None:
        """Classes and aggregators that no task needs: those that were needed last stay, but for those of kinds and
        groups that have gone."""
        gone = {kind for kind in self._kinds_gone if kind not in self._of_kind and kind not in self.outside}
        for name in gone:
            self.kinds.pop(name, None)
        self._kinds_gone -= gone
        for key, one in list(self.classes.items()):
            if one.tasks == 0 and (key[0] in gone or (key[2] and key[2] not in self.groups)):
                self._drop_class(self.classes.pop(key))
        unused = [key for key, kind in self.classes.items() if kind.tasks == 0]
        drops = unused[: max(0, len(unused) - CLASSES_KEPT)]
        for key in drops:
            self._drop_class(self.classes.pop(key))
        count = sum(len(kind.aggregators) for kind in self.classes.values())
        full = count > self._aggregators_kept
        if full:
            for kind in self.classes.values():
                self._drop_aggregators(kind)
            self._aggregators_kept = AGGREGATORS_KEPT + 2 * sum(len(kind.aggregators) for kind in self.classes.values())
        if self.forgets is not None and (drops or full):
            self.forgets.aggregators_left({name for kind in self.classes.values() for name in kind.aggregators})
        for name in [name for name, user in self.users.items() if user.tasks == 0]:
            if self.graph.has_node(self.users[name].node) and not self.graph.in_arcs(self.users[name].node):
                self.changes.remove_node(self.users.pop(name).node)

    # ---- classes, their aggregators and doors

    def _key(self, task: Task) -> Key:
        limits = task.group if task.group in self.groups and _has_limits(self.groups[task.group]) else ""
        kind = task.kind if self.kinds.get(task.kind) is not None else ""
        return kind, tuple(sorted((name, amount) for name, amount in task.demand.items() if amount > 0)), limits

    def _class(self, task: Task) -> TaskClass:
        key = self._key(task)
        if key not in self.classes and len(self.classes) >= CLASSES_MAX:
            key = key[0], (), ""
        kind = self.classes.pop(key, None) or TaskClass(key[0], dict(key[1]), key[2])
        self.classes[key] = kind
        return kind

    def _drop_class(self, kind: TaskClass) -> None:
        for aggregator in kind.aggregators.values():
            self._drop_aggregator(aggregator)
        for door in kind.doors.values():
            self.changes.remove_node(door.node)

    def _drop_aggregator(self, aggregator: AggregatorNode) -> None:
        for pipe in aggregator.pipes.values():
            self.pipes.forget(pipe)
        self.changes.remove_node(aggregator.node)

    def _drop_aggregators(self, kind: TaskClass) -> None:
        """Those to which nothing leads."""
        first_in = self.graph.network.nodes[FIRST_IN]
        for name, aggregator in list(kind.aggregators.items()):
            if self.graph.has_node(aggregator.node) and first_in[aggregator.node] == NONE:
                self._drop_aggregator(kind.aggregators.pop(name))

    def allows(self, kind: TaskClass, machine: str) -> bool:
        """Whether tasks of a class may ever go to a machine."""
        allowed = self.kinds.get(kind.kind)
        return allowed is None or machine in allowed

    def _head(self, kind: TaskClass, to: str | Aggregator, of: TaskNode | Aggregator) -> int | None:
        """The node to which an arc leads; None if there may be no such arc."""
        if isinstance(to, Aggregator):
            return self._aggregator(kind, to).node
        place = self.machines.get(to)
        if place is None:
            whose = (
                f"the aggregator {of.kind} {of.name}".rstrip() if isinstance(of, Aggregator) else f"task {of.task.name}"
            )
            raise ProblemError(f"an arc of {whose} leads to the machine {to}; there is no such machine")
        if not self.allows(kind, to):
            return None
        if not kind.has_doors:
            return place.node
        door = kind.doors.get(to)
        if door is None:
            capacity = self.door_capacity(kind, to)
            node = self.changes.add_node()
            door = kind.doors[to] = Door(node, self.changes.add_arc(node, place.node, 0, capacity), capacity)
        return door.node

    def _aggregator(self, kind: TaskClass, aggregator: Aggregator) -> AggregatorNode:
        known = kind.aggregators.get(aggregator)
        if known is None:
            known = kind.aggregators[aggregator] = AggregatorNode(self.changes.add_node())
            self._refresh(kind, aggregator)
        return known

    def _refresh(self, kind: TaskClass, aggregator: Aggregator) -> None:
        """Ask where an aggregator leads, and have it lead there."""
        if not self._has_seen_changes:  # It has heard of the arcs to some machines one by one.
            self._show_machines()
        node = kind.aggregators[aggregator]
        wanted: dict[tuple[str | Aggregator, int], ArcTo] = {}
        for arc in self.policy.aggregator_arcs(aggregator):
            number = 0
            while (arc.to, number) in wanted:
                number += 1
            wanted[arc.to, number] = arc
        for key in [key for key in node.pipes if key not in wanted]:
            self.pipes.remove(node.pipes.pop(key))
        for key, arc in wanted.items():
            self._lead(kind, node, key, arc, aggregator)

    def _lead(
        self, kind: TaskClass, node: AggregatorNode, key: tuple[str | Aggregator, int], arc: ArcTo, of: Aggregator
    ) -> None:
        head = self._head(kind, arc.to, of)
        pipe = node.pipes.get(key)
        if pipe is not None and pipe.head != head:
            self.pipes.remove(node.pipes.pop(key))
            pipe = None
        if pipe is not None:
            self.pipes.change(pipe, arc.cost, arc.capacity)
        elif head is not None:
            node.pipes[key] = self.pipes.add(node.node, head, arc.cost, arc.capacity)

    def _follow(self, place: MachineNode) -> None:
        """A machine has changed; the policy says which arcs to it have."""
        assert self.follows is not None
        machine = place.machine
        for aggregator, arc in self.follows.machine_arcs(machine).items():
            for kind in self.classes.values():
                node = kind.aggregators.get(aggregator)
                if node is not None:
                    self._lead(kind, node, (machine.name, 0), arc, aggregator)
        self.pipes.change(place.slots, self.policy.machine_cost(machine), machine.slots)

    def fit_doors(self, machine: str) -> None:
        """To a machine that has other slots or resources than before."""
        for kind in self.classes.values():
            if machine in kind.doors:
                self._fit_door(kind, machine)

    def _fit_door(self, kind: TaskClass, machine: str) -> None:
        self.set_door(kind.doors[machine], self.door_capacity(kind, machine))

    def set_door(self, door: Door, capacity: int) -> None:
        """So many may pass."""
        if door.capacity != capacity:
            door.capacity = capacity
            self.changes.set_capacity(door.arc, capacity)

    def door_capacity(self, kind: TaskClass, machine: str) -> int:
        """How many tasks of a class fit into what a machine has left, and the group's limits let there."""
        place = self.machines[machine]
        most = place.machine.slots
        fitting = copies(place.left(), kind.demand)
        if fitting is not None:
            most = min(most, fitting)
        if kind.group:
            most = min(most, self.group_room(kind.group, machine))
        return most

    def group_room(self, name: str, machine: str) -> int:
        """How many more tasks of a group a machine may have, but for its rack's limit."""
        group = self.groups.get(name)
        room = WAITING_MAX
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
        group = self.groups.get(name)
        own = self._group_running.get(name)
        return (group.running.get(machine, 0) if group else 0) + (own[machine] if own else 0)

    def has_running(self, name: str) -> bool:
        """Whether a group has tasks that run anywhere."""
        group, own = self.groups.get(name), self._group_running.get(name)
        return bool((group and any(group.running.values())) or (own and any(own.values())))

    # ---- tasks

    def _ask(self, task: Task) -> TaskCosts:
        if task.since_s is not None:
            age_s = max(0.0, self.now_s - task.since_s)
            if task.runs_on is None:
                task = task if task.waited_s == age_s else replace(task, waited_s=age_s)
            elif task.ran_s != age_s:
                task = replace(task, ran_s=age_s)
        return self.policy.task(task)

    def _waiting_cost(self, costs: TaskCosts, task: Task) -> int:
        return costs.waiting + PRIORITY_COST * (_bounded(task.priority) - self.priority_min)

    def _note_priority(self, priority: int) -> None:
        """Of all tasks the lowest priority costs as the policy says: lower ones would rather wait than be placed."""
        priority = _bounded(priority)
        if priority < self.priority_min:
            self.waiting.raise_all(PRIORITY_COST * (self.priority_min - priority))
            self.priority_min = priority

    def _age_waiting(self, task: TaskNode, costs: TaskCosts, waiting: int) -> None:
        since_s = task.task.since_s
        if since_s is None:
            since_s = self.now_s - task.task.waited_s
        task.waiting = waiting
        self.waiting.add(task.node, task.waiting_arc, waiting, costs.waiting_per_s or 0.0, since_s, self.now_s)

    def _preferred_cost(self, costs: TaskCosts) -> int:
        return min((_first(arc.cost) for arc in costs.arcs), default=0) - PREFERRED_GAIN

    def _task_heads(self, task: TaskNode, costs: TaskCosts) -> list[tuple[int, int]]:
        """Where a task's arcs lead, and what they cost."""
        heads: list[tuple[int, int]] = []
        if self.is_closed(task.task.kind):
            return heads
        for arc in costs.arcs:
            head = self._head(task.kind, arc.to, task)
            if head is not None:
                heads.append((head, _first(arc.cost)))
        if task.task.preferred:
            cost = self._preferred_cost(costs)
            for name in task.task.preferred:
                head = self._head(task.kind, name, task) if name in self.machines else None
                if head is not None:
                    heads.append((head, cost))
        return heads

    def _refresh_tasks(self, structure: set[str], changed: bool) -> None:
        """Ask of all tasks whose arcs may be others now, as machines are."""
        renewed = [self.tasks[name].task for name in self._to_renew]
        renewed += [one.task for name in self._to_refresh if self.is_closed((one := self.tasks[name]).task.kind)]
        self.add_tasks(renewed)
        for name in list(self._to_refresh):
            self._refresh_task(self.tasks[name])
        self._to_renew, self._to_refresh = set(), set()
        if not structure and not changed:
            return
        for task in list(self.tasks.values()):
            names = task.asks_again
            preferred = task.task.preferred
            if (
                names is None
                or (structure and not structure.isdisjoint(names))
                or (structure and not structure.isdisjoint(preferred))
            ):
                self._refresh_task(task)

    def _refresh_task(self, task: TaskNode) -> None:
        """Ask where it may go, and change the arcs that are others then."""
        costs = self._ask(task.task)
        task.asks_again = costs.asks_again
        waiting = self._waiting_cost(costs, task.task)
        self.changes.set_cost(task.waiting_arc, waiting)
        if task.task.runs_on is None:
            self._age_waiting(task, costs, waiting)
        else:
            self.waiting.add(task.node, task.waiting_arc, waiting, 0.0, 0.0, self.now_s)
        wanted = Counter(self._task_heads(task, costs))
        staying = self.staying.arc(task.node)
        for arc in self.graph.out_arcs(task.node) if self.graph.has_node(task.node) else ():
            if arc in (task.waiting_arc, staying) or not self.changes.has_arc(arc):
                continue
            row = int(self.graph.head[arc]), int(self.graph.cost[arc])
            if wanted[row] > 0:
                wanted[row] -= 1
            else:
                self.changes.remove_arc(arc)
        self.changes.add_unit_arcs(task.node, list(wanted.elements()))
        if task.task.runs_on is not None:
            running = self.running_cost(costs, task.task)
            self.changes.set_cost(staying, running)
            rate = -(costs.running_per_s or 0.0)
            self.staying.add(task.node, staying, running, rate, task.task.since_s or 0.0, self.now_s)

    def _stops(self, task: TaskNode) -> None:
        """It does not run any more, wherever it did."""
        machine = task.task.runs_on
        assert machine is not None
        place = self.machines.get(machine)
        if place is not None:
            self.changes.remove_arc(self.staying.arc(task.node))
            place.tasks.discard(task.task.name)
            for resource, amount in task.task.demand.items():
                place.used[resource] = place.used.get(resource, 0.0) - amount
            if task.task.demand:
                self._changed[machine] = None
            if not place.tasks:
                place.used.clear()
        own = self._group_running.get(task.task.group)
        if own is not None:
            own[machine] -= 1
            if own[machine] <= 0:
                del own[machine]
            if not own:
                del self._group_running[task.task.group]
            self._groups_changed.add(task.task.group)
        self.staying.drop(task.node)
        self.at[task.node] = NONE
        task.task = self._known_tasks[task.task.name] = replace(task.task, runs_on=None, since_s=self.now_s)
        self._to_refresh.add(task.task.name)

    def _user(self, name: str) -> UserNode:
        user = self.users.get(name)
        if user is None:
            node = self.changes.add_node(0, Kind.UNSCHEDULED)
            user = self.users[name] = UserNode(node, self.changes.add_arc(node, self.sink, 0, WAITING_MAX))
        return user

    def _leave_user(self, task: TaskNode) -> None:
        self.users[task.task.user].tasks -= task.is_sent


def _has_limits(group: Group) -> bool:
    return bool(group.max_per_machine or group.max_per_rack or group.together_with)


def _bounded(priority: int) -> int:
    return max(-PRIORITY_MAX, min(PRIORITY_MAX, priority))


def _first(cost: UnitCost) -> int:
    return cost if isinstance(cost, int) else cost(0)
