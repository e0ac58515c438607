"""The flow network of a cluster under a policy, from round to round: changes in, placements out.

A round applies what has changed, solves, and reads where tasks go. What flows cannot say is seen to around the solve:
users' shares, by bounds that are relaxed as long as slots stay free; gangs, each of which is tried and undone;
resources of several dimensions and racks' limits, by turning tasks away and solving again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scheduler.flow.cluster_changes import ClusterChanges, Explanation, Placed, Share, Way
from scheduler.flow.cluster_graph import ClusterGraph
from scheduler.flow.cluster_nodes import Door, TaskNode
from scheduler.flow.explaining import explain
from scheduler.flow.extract import Placements, extract, settle
from scheduler.flow.fitting import admit, copies
from scheduler.flow.gang_trials import GangTurns, RoomOfMachines, why_never
from scheduler.flow.graph import total_cost
from scheduler.flow.limits import cost_max, largest
from scheduler.flow.network import NONE
from scheduler.flow.policies.policy import Group, Policy
from scheduler.flow.problem import Integers, Problem, ProblemError
from scheduler.flow.shares import Balance, Due, Holding, max_min
from scheduler.flow.solvers.live import SECOND_AFTER_S, LiveRace
from scheduler.flow.solvers.stopping import StopFlag

__all__ = ["ClusterChanges", "ClusterNetwork", "Explanation", "Placed", "Share", "Way"]

RESOLVES_MAX = 8
"""Solves of a round because tasks were turned away."""
SHARINGS_MAX = 4
"""Solves of a round because slots stayed free that users' shares kept from others."""
GROWTH_MAX = 4
"""So many times as many nodes a network may get before a solve, after a gang was tried at the highest price."""
STEPS_MAX = 64
"""Arcs on the way of a task, for what sums may come to."""
MACHINES_TRIED_MAX = 4
"""For a group whose tasks all go to one machine."""

OUTSIDE = "no machine may have it now; or its constraints wait for their turn, as their user has many"


@dataclass(slots=True)
class Sent:
    """Where a flow sends tasks that do not run there."""

    placements: Placements
    moved: list[tuple[TaskNode, str]]
    refused: set[str] = field(default_factory=set)
    """Tasks among these that their machines have no room for."""


class ClusterNetwork:
    """See the module's docstring. A round that raises `ProblemError` leaves nothing to go on with: make a new one.

    After `StoppedError` the next round goes on; the changes have been taken note of.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        keeps_running: bool = False,
        second_after_s: float = SECOND_AFTER_S,
        largest_first: bool = True,
    ) -> None:
        self.keeps_running = keeps_running
        self.largest_first = largest_first
        """Which request a machine admits first."""
        self.cluster = ClusterGraph(policy)
        self.graph = self.cluster.graph
        self.race = LiveRace(self.graph, second_after_s=second_after_s)
        self._shares: dict[str, Share] = {}
        self.balance = Balance()
        self._placements: Placements | None = None
        """As the graph has them now."""
        self._refused: set[str] = set()
        """Tasks that the last round turned away."""
        self._tried: list[TaskNode] = []
        """Tasks of gangs whose waiting arcs are as dear as for a trial."""
        self._narrowed: dict[tuple[int, str], tuple[Door, int]] = {}
        """Doors that let through less, or more, than they would by themselves."""
        self._withheld: list[TaskNode] = []
        self._turns = GangTurns()
        self._room = RoomOfMachines(keeps_running=keeps_running)
        self._rounds = 0

    def round(self, changes: ClusterChanges, stop: StopFlag | None = None) -> Placed:
        """Take the changes, solve, and tell where tasks go. `StoppedError` if the flag is set."""
        spent_s = self.race.spent_s
        wins = self.race.wins.copy()
        self._rounds += 1
        cluster = self.cluster
        if changes.now_s < cluster.now_s:
            raise ProblemError(f"now_s is {changes.now_s}; allowed are numbers from {cluster.now_s}, of the last round")
        cluster.now_s = changes.now_s
        cluster.age()
        self._settle_those_that_run(changes)
        self._undo()
        self._take(changes)
        allowed = self._begin_sharing()
        self._solve(stop)
        self._relax_bounds(stop)
        unplaceable = self._decide_gangs(stop)
        sent = self._admit(stop)
        self._refused = sent.refused
        self._end_sharing(allowed)
        cluster.purge()
        self._forget_shares()
        placed = [(task.task.name, machine) for task, machine in sent.moved if task.task.name not in sent.refused]
        wins = self.race.wins - wins
        going = int(np.count_nonzero(sent.placements.machine >= 0))
        return Placed(
            placed=placed,
            stopped=self._stopped(sent.placements),
            unplaceable=unplaceable,
            cost=self._cost(),
            solver=max(wins, key=wins.__getitem__) if wins else "",
            solve_s=self.race.spent_s - spent_s,
            nodes=self.graph.nodes,
            arcs=self.graph.arcs,
            waiting=cluster.kinds.outside + len(cluster.tasks) - going + len(sent.refused),
        )

    def explain(self, task: str) -> Explanation:
        """The ways that a task has, with their costs and what binds there. `KeyError` if it is unknown."""
        if self.cluster.kinds.is_outside(task):
            return Explanation(task, None, 0, [], outside=OUTSIDE)
        told = explain(self.cluster, task)
        placements, node = self._placements, self.cluster.tasks[task].node
        if placements is None or task in self._refused or node >= len(placements.machine):
            return told
        machine = int(placements.machine[node])
        return told if machine == NONE else replace(told, machine=self.cluster.by_node[machine])

    def dump(self) -> Problem:
        """The problem as the last round has solved it."""
        return self.graph.compact().problem

    # ---- changes

    def _settle_those_that_run(self, changes: ClusterChanges) -> None:
        """Tasks that run where the flow sent them get arcs there, and their units move to these."""
        placements, self._placements = self._placements, None
        if not self.keeps_running or placements is None:
            return
        cluster = self.cluster
        others = {*changes.tasks_gone, *(task.name for task in changes.tasks)}
        gone = set(changes.machines_gone)
        rows: list[tuple[str, str]] = []
        for name, machine in changes.tasks_run:
            task, place = cluster.tasks.get(name), cluster.machines.get(machine)
            if task is None or place is None or name in others or machine in gone or task.task.runs_on == machine:
                continue
            if placements.machine[task.node] == place.node:
                rows.append((name, machine))
        if not rows:
            return
        nodes = np.array([cluster.tasks[name].node for name, _ in rows], np.int64)
        asked = [cluster.asked_to_run(name, machine) for name, machine in rows]
        arcs = settle(self.graph, placements, nodes, np.array([cost for _, cost in asked], np.int64)).tolist()
        for (name, machine), arc, (costs, _) in zip(rows, arcs, asked, strict=True):
            cluster.run(name, machine, arc, costs=costs)

    def _undo(self) -> None:
        """What the round before did for itself alone."""
        cluster = self.cluster
        there = [task for task in self._tried if cluster.tasks.get(task.task.name) is task]
        self._price_waiting(there, None)
        for task in there:
            if task.task.runs_on is None:
                cluster.withhold(task)
        for task in self._withheld:
            if cluster.tasks.get(task.task.name) is task:
                cluster.send(task)
        for door, capacity in self._narrowed.values():
            if cluster.changes.graph.has_node(door.node):
                cluster.classes.set_door(door, capacity)
        if self._tried:  # No arc is as dear as in the trials any more.
            self.graph.cost_max = largest(self.graph.cost)
        self._tried, self._withheld, self._narrowed = [], [], {}

    def _take(self, changes: ClusterChanges) -> None:
        cluster = self.cluster
        for name in changes.tasks_gone:
            cluster.remove_task(name)
        for name in changes.machines_gone:
            cluster.remove_machine(name)
            self._room.machine_gone(name)
        for machine in changes.machines:
            cluster.set_machine(machine)
            self._room.machine_told(machine)
        for kind, names in changes.kinds.items():
            cluster.set_kind(kind, names)
        for group, limits in changes.groups.items():
            cluster.set_group(group, limits)
        cluster.see()
        for task in changes.tasks:
            if task.runs_on is not None and not self.keeps_running:
                raise ProblemError(f"runs_on of task {task.name} is {task.runs_on}; this network keeps none that run")
        coming = [*cluster.kinds.take_opened(), *changes.tasks]
        cluster.add_tasks(coming)
        cluster.pipes.foresee(len(coming))
        if self.keeps_running:
            for name, machine_name in changes.tasks_run:
                cluster.run(name, machine_name)
        cluster.see_tasks()
        cluster.ask_again()
        for user, share in changes.shares.items():
            if share.weight <= 0 or share.running < 0:
                raise ProblemError(
                    f"the share of {user} is {share}; allowed are weights above 0 and tasks running from 0"
                )
            self._shares[user] = share
        for name in list(cluster.groups.members):
            if not cluster.groups.is_all_or_nothing(name):
                for member in cluster.groups.members[name]:
                    cluster.send(cluster.tasks[member])

    # ---- solves

    def _solve(self, stop: StopFlag | None) -> None:
        """With all changes; again as long as convex arcs are used up as far as the graph sees them."""
        cluster = self.cluster
        cluster.changes.apply()
        cluster.age()
        self.race.solve(stop)
        while cluster.pipes.expose():
            self.race.solve(stop)

    def _cost(self) -> int:
        graph = self.graph
        if graph.cost_max * max(1, len(self.cluster.tasks)) * STEPS_MAX < 2**62:
            return int(graph.cost @ graph.flow)
        return total_cost(graph.cost, graph.flow)

    # ---- users' shares

    def _begin_sharing(self) -> dict[str, int]:
        """How many slots users may have, by what they have had until now."""
        cluster = self.cluster
        users = [name for name, user in cluster.users.items() if user.tasks]
        self.balance.begin(cluster.now_s, {name: self._shares.get(name, Share()).weight for name in users})
        return self._bound_users()

    def _end_sharing(self, allowed: Mapping[str, int]) -> None:
        """Take note of what users who wait on hold until the next round."""
        cluster = self.cluster
        refused = Counter(cluster.tasks[name].task.user for name in self._refused)
        holdings: dict[str, Holding] = {}
        for name, user in cluster.users.items():
            waiting = int(self.graph.flow[user.arc]) + refused[name] if user.tasks else 0
            if waiting and name in allowed:
                held = self._shares.get(name, Share()).running + user.tasks - waiting
                holdings[name] = Holding(held, is_short=held < allowed[name])
        self.balance.end(holdings)

    def _bound_users(self, wanted: Mapping[str, int] | None = None) -> dict[str, int]:
        """Keep as many tasks of each user waiting as are more than the user's share, which is returned.

        `wanted`: how many users could place, if that is less than they have.
        """
        cluster = self.cluster
        users = {name: user for name, user in cluster.users.items() if user.tasks}
        dues: dict[str, Due] = {}
        slots = cluster.slots
        for name, user in users.items():
            share = self._shares.get(name, Share())
            tasks = user.tasks if wanted is None else min(user.tasks, wanted[name])
            runs = share.running + user.running
            dues[name] = Due(
                share.weight, share.running + tasks, share.running, runs, self.balance.ahead_s.get(name, 0.0)
            )
            slots += share.running
        due = max_min(slots, dues)
        for name, user in cluster.users.items():
            minimum = max(0, user.tasks - due[name] + dues[name].held) if user.tasks and len(users) > 1 else 0
            if minimum != user.minimum:
                user.minimum = minimum
                cluster.changes.set_minimum(user.arc, minimum)
        return due

    def _forget_shares(self) -> None:
        """Of users without tasks."""
        users, kinds = self.cluster.users, self.cluster.kinds
        for name in [one for one in self._shares if one not in users and not kinds.has_outside(one)]:
            del self._shares[name]

    def _relax_bounds(self, stop: StopFlag | None) -> None:
        """While slots stay free that a share keeps from others, whoever cannot use a share leaves it to them."""
        cluster = self.cluster
        wanted = {name: user.tasks for name, user in cluster.users.items() if user.tasks}
        for _ in range(SHARINGS_MAX):
            placed = {
                name: cluster.users[name].tasks - int(self.graph.flow[cluster.users[name].arc]) for name in wanted
            }
            kept = [
                name
                for name, count in placed.items()
                if wanted[name] > count and cluster.users[name].tasks - cluster.users[name].minimum == count
            ]
            if not kept or sum(placed.values()) >= cluster.slots:
                return
            wanted = {name: wanted[name] if name in kept else placed[name] for name in wanted}
            self._bound_users(wanted)
            if not cluster.changes.recorded:
                return
            self._solve(stop)

    # ---- gangs

    def _decide_gangs(self, stop: StopFlag | None) -> dict[str, str]:
        """Try the gangs that wait, in turns of users. Why some cannot be placed."""
        cluster = self.cluster
        unplaceable: dict[str, str] = {}
        tasks_of: dict[str, list[TaskNode]] = {}
        self._room.forget(cluster.groups.members)
        for name, members in cluster.groups.members.items():
            if not cluster.groups.is_all_or_nothing(name) or len(members) < cluster.groups.known[name].gang:
                continue
            reason = self._why_never(name, len(members), cluster.tasks[next(iter(members))])
            if reason:
                unplaceable[name] = reason
            elif len(members) <= cluster.slots:
                tasks_of[name] = [cluster.tasks[member] for member in members]
        names = self._turns.take(
            {
                name: (task.user, -task.priority, min(one.task.since_s or 0.0 for one in tasks))
                for name, tasks in tasks_of.items()
                for task in (tasks[0].task,)
            },
            self._rounds,
        )
        before = self._cost() if names else 0
        for name in names:
            before = self._try(name, tasks_of[name], before, stop)
        if cluster.changes.recorded:
            self._solve(stop)
        return unplaceable

    def _why_never(self, name: str, needed: int, first: TaskNode) -> str:
        """Why a gang could not be placed even if nothing else were there; "" if it could."""
        cluster, group, demand = self.cluster, self.cluster.groups.known[name], first.task.demand
        allowed = cluster.kinds.machines(first.kind.kind)
        asked = needed, replace(group, running={}), tuple(sorted(demand.items())), allowed

        def find() -> str:
            return why_never(needed, name, group, self._room.places(cluster.machines, demand, allowed))

        return self._room.why_never(name, asked, find)

    def _try(self, name: str, tasks: Sequence[TaskNode], before: int, stop: StopFlag | None) -> int:
        """Place a gang if that costs less than to have all its tasks wait. What the flow costs then."""
        cluster = self.cluster
        price = sum(task.waiting for task in tasks)
        if cluster.groups.known[name].together_with != name:
            found = self._trial(tasks, stop)
            if found is not None and found - before < price:
                return found
            self._give_up(tasks)
            return before
        best: tuple[int, str] | None = None
        for machine in self._roomiest(name, tasks):
            self._open(tasks[0], machine, len(tasks))
            found = self._trial(tasks, stop)
            if found is not None and found - before < price and (best is None or found < best[0]):
                best = found, machine
            self._give_up(tasks)
            self._open(tasks[0], machine, 0)
        if best is None:
            return before
        self._open(tasks[0], best[1], len(tasks))
        found = self._trial(tasks, stop)
        assert found is not None
        return found

    def _trial(self, tasks: Sequence[TaskNode], stop: StopFlag | None) -> int | None:
        """What the flow costs with all of these placed; None if they cannot be."""
        # Whoever would rather have one of them wait at the price of all would rather have all of them wait.
        price = 1 + sum(abs(task.waiting) for task in tasks)
        for task in tasks:
            self._tried.append(task)
            self.cluster.send(task)
        self._bound_users()
        self._price_waiting(tasks, min(price, cost_max(GROWTH_MAX * self.graph.nodes)))
        self._solve(stop)
        arcs = np.array([task.waiting_arc for task in tasks], np.int64)
        return None if self.graph.flow[arcs].any() else self._cost()

    def _give_up(self, tasks: Sequence[TaskNode]) -> None:
        """Undo a trial; the next solve sees to the flow."""
        for task in tasks:
            self.cluster.withhold(task)
        self._price_waiting(tasks, None)
        gone = {id(task) for task in tasks}
        self._tried = [task for task in self._tried if id(task) not in gone]
        self._bound_users()

    def _price_waiting(self, tasks: Sequence[TaskNode], cost: int | None) -> None:
        """Of tasks of a gang, which the graph has already; None: as ever. The graph is told at once, so that what is to
        change in it knows nothing of such prices, which bound how large it may get."""
        waiting = self.cluster.waiting
        arcs = np.array([task.waiting_arc for task in tasks], np.int64)
        costs = [waiting.cost(task.node) if cost is None else cost for task in tasks]
        self.graph.set_costs(arcs, np.array(costs, np.int64))

    def _open(self, task: TaskNode, machine: str, capacity: int) -> None:
        """The door of a class to a machine, for this round."""
        door = task.kind.doors[machine]
        self._narrowed.setdefault((id(task.kind), machine), (door, door.capacity))
        self.cluster.classes.set_door(door, capacity)

    def _roomiest(self, name: str, tasks: Sequence[TaskNode]) -> list[str]:
        """Machines with room for all of a group, those with most slots first."""
        cluster, kind = self.cluster, tasks[0].kind
        found: list[tuple[int, str]] = []
        for machine in kind.doors:
            place = cluster.machines[machine]
            if self._most(cluster.groups.known[name], kind.demand, place.machine.slots, place.left()) >= len(tasks):
                found.append((-place.machine.slots, machine))
        return [machine for _, machine in sorted(found)[:MACHINES_TRIED_MAX]]

    def _most(self, group: Group, demand: Mapping[str, float], slots: int, free: Mapping[str, float]) -> int:
        """How many tasks of a group fit on one machine with so much."""
        most = slots
        for limit in (group.max_per_machine, group.max_per_rack):
            most = min(most, limit) if limit else most
        fitting = copies(free, demand)
        return most if fitting is None else min(most, fitting)

    # ---- who fits

    def _admit(self, stop: StopFlag | None) -> Sent:
        """Read the placements, and turn away what does not fit, which is solved again."""
        for _ in range(RESOLVES_MAX):
            sent = self._sent()
            if not sent.refused:
                break
            self._solve(stop)
        else:
            sent = self._sent()
        broken = self._broken(sent)
        if broken:
            for task in broken:
                self.cluster.withhold(task)
            self._bound_users()
            self._solve(stop)
            sent = self._sent()
            sent.refused |= {task.task.name for task in self._broken(sent)}
        self._placements = None if self.cluster.changes.recorded else sent.placements
        return sent

    def _sent(self) -> Sent:
        """Where the flow sends tasks, and who is turned away; their doors are narrowed, for the next solve."""
        cluster = self.cluster
        placements = extract(self.graph)
        sent = Sent(placements, [])
        at = self._at(len(placements.machine))
        for node in np.flatnonzero((placements.machine >= 0) & (placements.machine != at)).tolist():
            task = cluster.tasks[cluster.by_node[node]]
            sent.moved.append((task, cluster.by_node[int(placements.machine[node])]))
        crowds: dict[str, list[TaskNode]] = {}
        grouped: dict[str, list[tuple[TaskNode, str]]] = {}
        for task, machine in sent.moved:
            if task.task.demand:
                crowds.setdefault(machine, []).append(task)
            if task.task.group in cluster.groups.known:
                grouped.setdefault(task.task.group, []).append((task, machine))
        for machine, tasks in crowds.items():
            self._fit_machine(machine, tasks, sent)
        for name, rows in grouped.items():
            self._fit_group(name, rows, sent)
        return sent

    def _fit_machine(self, machine: str, tasks: Sequence[TaskNode], sent: Sent) -> None:
        """Admit what fits into a machine's resources."""
        cluster = self.cluster
        place = cluster.machines[machine]
        requests = [(task.task.name, task.task.demand) for task in tasks]
        _, refused, left = admit(place.left(), requests, largest_first=self.largest_first)
        if not refused:
            return
        sent.refused.update(refused)
        admitted = Counter(id(task.kind) for task in tasks if task.task.name not in sent.refused)
        for kind in cluster.classes.values():
            door = kind.doors.get(machine)
            if door is not None:
                fitting = copies(left, kind.demand)
                if fitting is not None:
                    self._narrow(id(kind), machine, door, admitted[id(kind)] + fitting)
        self._withhold_doorless(task for task in tasks if task.task.name in sent.refused)

    def _fit_group(self, name: str, rows: Sequence[tuple[TaskNode, str]], sent: Sent) -> None:
        """Admit as many of a group as its limits for machines and racks let through."""
        cluster = self.cluster
        group = cluster.groups.known[name]
        if not (group.max_per_rack or group.max_per_machine or group.together_with):
            return
        rack_of = (
            {machine: place.machine.rack for machine, place in cluster.machines.items()} if group.max_per_rack else {}
        )
        racks = Counter[str]()
        if rack_of:
            for machine, rack in rack_of.items():
                racks[rack] += cluster.groups.runs_of(name, machine)
        machines = Counter[str]()
        refused: list[tuple[TaskNode, str]] = []
        for task, machine in rows:
            if task.task.name in sent.refused:
                continue
            open_to = self._narrowed.get((id(task.kind), machine))
            room = open_to[0].capacity if open_to else cluster.groups.room(name, machine)
            rack = rack_of.get(machine, "")
            full = bool(group.max_per_rack) and racks[rack] >= group.max_per_rack
            if full or machines[machine] >= room:
                refused.append((task, machine))
            else:
                machines[machine] += 1
                racks[rack] += 1
        for task, machine in refused:
            sent.refused.add(task.task.name)
            names = cluster.racks[rack_of[machine]] if rack_of else {machine}
            for other in names:
                door = task.kind.doors.get(other)
                if door is not None:
                    self._narrow(id(task.kind), other, door, machines[other])
        self._withhold_doorless(task for task, _ in refused)

    def _narrow(self, kind: int, machine: str, door: Door, capacity: int) -> None:
        if capacity < door.capacity:
            self._narrowed.setdefault((kind, machine), (door, door.capacity))
            self.cluster.classes.set_door(door, capacity)

    def _withhold_doorless(self, tasks: Iterable[TaskNode]) -> None:
        """Of classes beyond those that have doors: they wait for the next round."""
        for task in tasks:
            if not task.kind.has_doors:
                self.cluster.withhold(task)
                self._withheld.append(task)

    def _broken(self, sent: Sent) -> list[TaskNode]:
        """Tasks of gangs that were to be placed, and not all of them are."""
        placed = {task.task.name for task, _ in sent.moved} - sent.refused
        broken = {task.task.group for task in self._tried if task.is_sent and task.task.name not in placed}
        return [task for task in self._tried if task.task.group in broken and task.is_sent]

    def _at(self, nodes: int) -> Integers:
        at = self.cluster.at
        if len(at) < nodes:
            at = self.cluster.at = np.append(at, np.full(nodes, NONE, np.int64))
        return at[:nodes]

    def _stopped(self, placements: Placements) -> list[str]:
        """Tasks that run, and whose units wait."""
        at = self._at(len(placements.machine))
        nodes = np.flatnonzero((at >= 0) & (placements.machine < 0))
        return [self.cluster.by_node[node] for node in nodes.tolist()]
