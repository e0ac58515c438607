"""The nodes and arcs of a cluster under a policy, kept as tasks and machines come, change and go.

From each machine to the sink as many units as it has slots; from each task to its user's aggregator of waiting tasks,
and from that to the sink; all else as the policy says. Policies know nothing of which machines a task may go to and
fits: tasks that are alike in that are a class, and a class has copies of the policy's aggregators of its own, whose
arcs lead to machines that it may go to. Where resources or limits of a group bind, they lead there through a door: a
node of the class and the machine, with one arc to the machine, whose capacity is how many tasks of the class fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from scheduler.flow.ageing import NO_ARC, Ageing
from scheduler.flow.changes import Changes
from scheduler.flow.cluster_changes import Gone
from scheduler.flow.cluster_nodes import MachineNode, TaskNode, UserNode
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.groups_in_graph import GroupsInGraph
from scheduler.flow.kinds_in_graph import KindsInGraph
from scheduler.flow.network import NONE
from scheduler.flow.pipes import Pipes
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
from scheduler.flow.task_classes import TaskClasses

WAITING_MAX = (1 << 31) - 1
"""Tasks of a user that may wait."""
PRIORITY_COST = 1000
"""How much dearer waiting is for each step of priority."""
PRIORITY_MAX = 10_000
PREFERRED_GAIN = 10
"""How much cheaper a preferred machine is than the best that the policy says."""
STAY_GAIN = 1
"""How much cheaper staying is than the policy says: so nothing migrates between equal places."""


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
        self.kinds = KindsInGraph()
        self.groups = GroupsInGraph()
        self.classes = TaskClasses(self.changes, self.pipes, self.machines, self.kinds, self.groups, self._arcs_of)
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
        self._asked_each_round: dict[str, None] = {}
        self._to_refresh: set[str] = set()
        """Tasks that ran, and do not any more; tasks of kinds that have other machines."""
        self._to_renew: set[str] = set()
        """Tasks that are of another class than they were."""
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
        self.classes.machine_gone(name)
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
        kinds = self.kinds
        if isinstance(machines, Gone):
            kinds.gone(name)
            return
        before, was_closed = kinds.machines(name), kinds.is_closed(name)
        if not kinds.tell(name, machines):
            return
        tasks = kinds.tasks(name)
        if kinds.is_closed(name):
            for task in tasks:
                self._leave_for_outside(task)
        elif was_closed or (before is None) != (machines is None):
            self._to_renew.update(tasks)
        else:
            self._to_refresh.update(tasks)

    def _leave_for_outside(self, name: str) -> None:
        """A task leaves the graph; one that runs does not, but has no ways to other machines any more."""
        task = self.tasks[name].task
        if task.runs_on is None:
            self.remove_task(name)
            self.kinds.put_outside(task)
        else:
            self._to_renew.add(name)

    def set_group(self, name: str, group: Group | None) -> None:
        """A group's limits, and where its tasks run that are no part of the graph; None: there is no such group."""
        if self.groups.tell(name, group):
            self._to_renew.update(task.task.name for task in self.tasks.values() if task.task.group == name)

    def remove_task(self, name: str) -> None:
        """An unknown one is ignored."""
        gone = self.tasks.get(name)
        if gone is None:
            self.kinds.take_from_outside(name)
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
        self.kinds.left(gone.task)
        self.groups.left(gone.task)
        self._asked_each_round.pop(name, None)
        self._to_refresh.discard(name)
        self._to_renew.discard(name)

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
        if task.runs_on is None and self.kinds.is_closed(task.kind):
            self.kinds.put_outside(task)
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
        self.kinds.joined(task)
        self.groups.joined(task)
        is_sent = place is not None or not self.groups.is_all_or_nothing(task.group)
        kind, user = self.classes.of(task), self._user(task.user)
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
        self.users[runs.user].running += 1
        self.at = grown(self.at, task.node + 1, NONE)
        self.at[task.node] = place.node
        for resource, amount in runs.demand.items():
            place.used[resource] = place.used.get(resource, 0.0) + amount
        self.groups.runs(runs.group, name)
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
        outside = self.kinds.take_from_outside(name) if machine in self.machines else None
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
            self.classes.fit_doors(name)
        self._refresh_tasks(structure, bool(changed) or self.follows is None)
        self.classes.refresh_kinds(self.kinds.take_changed())
        self._structure, self._changed = set(), {}

    def _show(self) -> None:
        """Show the policy the cluster, and ask about all aggregators."""
        self._show_machines()
        self.classes.refresh()

    def _show_machines(self) -> None:
        self.policy.see(Cluster(self._known_machines, self._known_tasks))
        self._has_seen_changes = True

    def _arcs_of(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        """Where it leads."""
        if not self._has_seen_changes:  # The policy has heard of the arcs to some machines one by one.
            self._show_machines()
        return self.policy.aggregator_arcs(aggregator)

    def _follow(self, place: MachineNode) -> None:
        """A machine has changed; the policy says which arcs to it have."""
        assert self.follows is not None
        machine = place.machine
        self.classes.follow(machine.name, self.follows.machine_arcs(machine))
        self.pipes.change(place.slots, self.policy.machine_cost(machine), machine.slots)

    def see_tasks(self) -> None:
        """After tasks have been told: what they leave to others."""
        if self.follows is None:
            self._show()
        self.classes.fit_groups(self.groups.take_changed())
        for name in self._changed:  # Tasks that were told to run there take resources.
            self.classes.fit_doors(name)
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
        """What no task needs any more."""
        left = self.classes.purge(self.kinds.forget_gone())
        if self.forgets is not None and left is not None:
            self.forgets.aggregators_left(left)
        for name in [name for name, user in self.users.items() if user.tasks == 0]:
            if self.graph.has_node(self.users[name].node) and not self.graph.in_arcs(self.users[name].node):
                self.changes.remove_node(self.users.pop(name).node)

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
        if self.kinds.is_closed(task.task.kind):
            return heads
        for arc in costs.arcs:
            head = self.classes.head(task.kind, arc.to, task)
            if head is not None:
                heads.append((head, _first(arc.cost)))
        if task.task.preferred:
            cost = self._preferred_cost(costs)
            for name in task.task.preferred:
                head = self.classes.head(task.kind, name, task) if name in self.machines else None
                if head is not None:
                    heads.append((head, cost))
        return heads

    def _refresh_tasks(self, structure: set[str], changed: bool) -> None:
        """Ask of all tasks whose arcs may be others now, as machines are."""
        renewed = [self.tasks[name].task for name in self._to_renew]
        renewed += [one.task for name in self._to_refresh if self.kinds.is_closed((one := self.tasks[name]).task.kind)]
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
        self.users[task.task.user].running -= 1
        self.groups.stopped(task.task.group, machine)
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


def _bounded(priority: int) -> int:
    return max(-PRIORITY_MAX, min(PRIORITY_MAX, priority))


def _first(cost: UnitCost) -> int:
    return cost if isinstance(cost, int) else cost(0)
