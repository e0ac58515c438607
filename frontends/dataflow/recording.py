"""Which task ran when at one worker, for a timeline: recorded while tasks run, in bounded memory.

Two ways of recording take turns. As long as there is room, each task is noted one by one, by a loop that is
`blocks.run_ready` with one more line. After that tasks run by `run_ready` itself, and what is known of them is their
*spell*: some milliseconds or more of which the blocks, the tasks in all and the time of each partition are told. The
room is renewed each `INTERVAL_NS`. So tasks that take long are all noted, and of tasks of a microsecond a sample, which
costs the others next to nothing.

A core calls `Recorder.run_ready` in place of `blocks.run_ready`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from frontends.dataflow.blocks import STOP, Cache, Graph, Run, Slot, run_ready
from frontends.dataflow.errors import StageReturned

Array = np.ndarray[Any, Any]

INTERVAL_NS = 500_000_000
SPELL_NS_MIN = 1_000_000
NS_PER_TASK = 2_000
"""A spell is so long for each task of its block, as they are gone through when it is closed."""
CUT_ABOVE_TASKS = 64
"""Blocks with more tasks are cut into several spells; shorter ones are of one."""
SPANS_PER_S_MAX = 10_000
"""What one worker records in a second, about; half of them are tasks."""
WORKER_ROW, COPIES_ROW = -1, -2
"""In place of a group: spans of a worker as a whole (blocks, spells), and of tasks that receive or send copies."""
SEVERAL = -1
"""In place of a stage: tasks of several stages, of which nothing more is known."""

MEASURED = [
    ("stage", "<i4"), ("first", "<i8"), ("last", "<i8"), ("begin_ns", "<i8"), ("end_ns", "<i8"), ("tasks", "<i8"),
    ("busy_ns", "<i8"),
]  # fmt: skip
SPAN = np.dtype([("group", "<i4"), ("index", "<i4"), *MEASURED])
"""A span: where, the stage, the first and the last block, from when to when, tasks in it, and their time.

On a worker's row the stage is the last one of the block, a signal as a rule. On rows of partitions spans of spells have
no tasks, as these are counted for the worker alone."""


@dataclass(slots=True)
class _Table:
    """What is known of a graph's tasks."""

    graph: Graph
    slots: tuple[Slot, ...]
    """Equal slots are the same object."""
    stages: Array
    numbers: Array
    """The slot of each task, by number."""
    places: Array
    """Group and index of each slot; the last line is that of tasks without one."""
    ends: int
    """The stage that is called last."""


@dataclass(slots=True)
class _Spell:
    table: _Table
    used_ns: list[int]
    """The list that the loop counts in, and what was in it at the beginning."""
    before_ns: list[int]
    stage: int
    first: int
    last: int
    begin_ns: int
    due_ns: int
    """When it may be closed."""
    end_ns: int


class Recorder:
    """One worker's. Spans go to `deliver`, at most those of `INTERVAL_NS` at a time."""

    def __init__(self, spans_per_s: int, deliver: Callable[[Array], None]) -> None:
        self._deliver = deliver
        self._room_max = max(1, spans_per_s * INTERVAL_NS // 2_000_000_000)
        self._span_ns = 2_000_000_000 // max(1, spans_per_s)
        """A spell is so long for each span that it makes."""
        self._room = 0
        self._renew_ns = 0
        self._tables: Cache[int, _Table] = Cache()
        self._slots: Cache[tuple[Slot, ...], tuple[Slot, ...]] = Cache()
        self._table: _Table | None = None
        self._run: Run | None = None
        self._block = -1
        self._counted = 0
        """How many tasks of the run have been counted."""
        self._uncounted = 0
        """Those that have been counted, and are in no span yet."""
        self._notes: list[tuple[int, int, int, int]] = []
        """Task, begin and end, and how many it was: of a chain more than one."""
        self._stretches: list[tuple[int, _Table, int]] = []
        """Where in the notes those of a block begin; of which graph, and block."""
        self._noting: Run | None = None
        """Whose stretch the next note belongs to."""
        self._spell: _Spell | None = None
        self._spans: list[Array] = []

    def run_ready(
        self,
        block: int,
        graph: Graph,
        run: Run,
        flagged: Collection[int],
        used_ns: list[int],
        clock: Callable[[], int],
        poll: Callable[[int], int],
        deadline: int,
    ) -> int:
        """Do what `blocks.run_ready` does, and record that it was done for this block, by this graph."""
        if run is not self._run:
            self._begin(block, graph, run)
        while True:
            now = clock()
            if now >= self._renew_ns:
                self.flush()
                self._room, self._renew_ns = self._room_max, now + INTERVAL_NS
            if self._room > 0:
                self.pause()
                deadline = self._run_noted(run, flagged, used_ns, clock, poll, deadline)
            else:
                deadline = self._run_spell(now, run, flagged, used_ns, clock, poll, deadline)
            if deadline == STOP or not run.queue:
                return deadline

    def pause(self) -> None:
        """Close the spell: what follows is recorded otherwise, or `used_ns` is about to be cleared."""
        spell, self._spell = self._spell, None
        if spell is None:
            return
        self._count()
        table = spell.table
        after, before = np.array(spell.used_ns), np.array(spell.before_ns)
        used = np.where(after >= before, after - before, after)
        seen = used.nonzero()[0]
        seen = seen[seen < len(table.places)]
        spans = np.zeros(len(seen) + 1, SPAN)
        spans["begin_ns"], spans["end_ns"] = spell.begin_ns, spell.end_ns
        spans["first"], spans["last"] = spell.first, spell.last
        counted, self._uncounted = self._uncounted, 0
        spans[0] = (
            WORKER_ROW, 0, spell.stage, spell.first, spell.last, spell.begin_ns, spell.end_ns, counted, used.sum(),
        )  # fmt: skip
        rest = spans[1:]
        rest["group"], rest["index"] = table.places[seen].T
        rest["stage"], rest["busy_ns"] = SEVERAL, used[seen]
        self._spans.append(spans)

    def flush(self) -> None:
        """Deliver what there is."""
        self.pause()
        self._take_notes()
        if self._spans:
            spans, self._spans = np.concatenate(self._spans), []
            self._deliver(spans)

    # ---- blocks -----------------------------------------------------------------------------------

    def _begin(self, block: int, graph: Graph, run: Run) -> None:
        """Other tasks are run from now on: of the next block, or what is left of this one."""
        table = self._table
        if self._run is not None and table is not None:
            if self._run.is_done():
                self._uncounted += len(table.graph.tasks) - self._counted
            else:  # What was left has moved away, or the epoch is another.
                self._count()
        self._run, self._block, self._counted = run, block, 0
        if table is None or table.graph is not graph:
            table = self._tables.get(id(graph))
            if table is None or table.graph is not graph:
                table = self._tabled(graph, run)
                self._tables.put(id(graph), table)
            self._table = table

    def _count(self) -> None:
        """Count the tasks that have run."""
        if self._run is not None and self._table is not None:
            done = len(self._table.graph.tasks) - len(self._run.undone())
            self._uncounted += done - self._counted
            self._counted = done

    def _tabled(self, graph: Graph, run: Run) -> _Table:
        slots = self._slots.get(graph.slots)
        if slots is None:
            slots = graph.slots
            self._slots.put(slots, slots)
        # Copies that a template sends at its end are of no call.
        stages = [graph.stages[task.call] if 0 <= task.call < len(graph.stages) else SEVERAL for task in graph.tasks]
        for first, chain in run.chains.items():
            if len({stages[task] for task in chain.left()}) > 1:
                stages[first] = SEVERAL
        return _Table(
            graph, slots, np.array(stages, np.int64), np.array([task.slot for task in graph.tasks], np.int64),
            np.array([*slots, (COPIES_ROW, 0)], np.int64), graph.stages[-1] if graph.stages else SEVERAL,
        )  # fmt: skip

    # ---- tasks one by one -------------------------------------------------------------------------

    def _run_noted(
        self,
        run: Run,
        flagged: Collection[int],
        used_ns: list[int],
        clock: Callable[[], int],
        poll: Callable[[int], int],
        deadline: int,
    ) -> int:
        """`blocks.run_ready` with notes, until there is no room for them."""
        assert self._table is not None
        if run is not self._noting:
            self._noting = run
            self._stretches.append((len(self._notes), self._table, self._block))
            self._room -= 1
        tasks, needs, queue, chains = run.tasks, run.needs, run.queue, run.chains
        pop, push, note = queue.popleft, queue.append, self._notes.append
        room = self._room
        task, count = -1, 1
        then = clock()
        try:
            while queue:
                task = pop()
                function, arguments, slot, after = tasks[task]
                if flagged and slot in flagged:
                    run.held_back.append(task)
                    continue
                chain = chains.get(task)
                left = 0 if chain is None else len(chain.left())
                returned = function(*arguments)
                if returned is not None:
                    if chain is None:
                        raise StageReturned(type(returned).__name__)
                    push(task)
                    after = ()
                now = clock()
                used_ns[slot] += now - then
                if chain is not None:
                    count = left - len(chain.left())
                note((task, then, now, count))
                count, then = 1, now
                for follower in after:
                    need = needs[follower] = needs[follower] - 1
                    if not need:
                        push(follower)
                room -= 1
                if now > deadline:
                    deadline = poll(now)
                    if deadline == STOP:
                        break
                    then = clock()
                if room <= 0:
                    break
        except BaseException:
            chain = run.chains.get(task)
            run.failed = task if chain is None else chain.left()[0]
            raise
        finally:
            self._room = room
        return deadline

    def _take_notes(self) -> None:
        """Make spans of the notes: one of each task, and one of each stretch on the worker's row."""
        notes, self._notes = self._notes, []
        stretches, self._stretches = self._stretches, []
        self._noting = None
        if not notes:
            return
        self._count()
        starts = [start for start, _, _ in stretches]
        lengths = np.diff([*starts, len(notes)])
        kept = lengths.nonzero()[0]
        task, begin_ns, end_ns, count = np.array(notes, np.int64).T
        tables = {id(table): table for _, table, _ in stretches}
        table_of = np.repeat([id(table) for _, table, _ in stretches], lengths)
        spans = np.zeros(len(notes), SPAN)
        for key, table in tables.items():
            mine = table_of == key
            spans["stage"][mine] = table.stages[task[mine]]
            places = table.places[table.numbers[task[mine]]]
            spans["group"][mine], spans["index"][mine] = places.T
        spans["first"] = spans["last"] = np.repeat([block for _, _, block in stretches], lengths)
        spans["begin_ns"], spans["end_ns"], spans["tasks"] = begin_ns, end_ns, count
        spans["busy_ns"] = end_ns - begin_ns
        blocks = np.zeros(len(kept), SPAN)
        blocks["group"] = WORKER_ROW
        blocks["stage"] = [stretches[number][1].ends for number in kept]
        blocks["first"] = blocks["last"] = [stretches[number][2] for number in kept]
        at = np.array(starts)[kept]
        blocks["begin_ns"], blocks["end_ns"] = begin_ns[at], end_ns[at + lengths[kept] - 1]
        blocks["tasks"] = np.add.reduceat(count, at)
        blocks["busy_ns"] = np.add.reduceat(spans["busy_ns"], at)
        self._uncounted -= int(count.sum())
        self._spans += [blocks, spans]

    # ---- spells -----------------------------------------------------------------------------------

    def _run_spell(
        self,
        now: int,
        run: Run,
        flagged: Collection[int],
        used_ns: list[int],
        clock: Callable[[], int],
        poll: Callable[[int], int],
        deadline: int,
    ) -> int:
        """`blocks.run_ready`, as a part of a spell."""
        table = self._table
        assert table is not None
        spell = self._spell
        if spell is not None and (
            spell.used_ns is not used_ns or spell.table.slots is not table.slots or now - spell.end_ns > SPELL_NS_MIN
        ):
            self.pause()
            spell = None
        if spell is None:
            work = max(self._span_ns * (len(table.places) + 1), NS_PER_TASK * len(table.graph.tasks))
            due = now + max(SPELL_NS_MIN, work)
            self._take_notes()
            spell = _Spell(table, used_ns, used_ns[:], table.ends, self._block, self._block, now, due, now)
            self._spell = spell
        elif spell.stage != table.ends:
            spell.stage = SEVERAL
        spell.last = self._block
        try:
            if len(table.graph.tasks) > CUT_ABOVE_TASKS:
                deadline = _until(spell.due_ns, run, flagged, used_ns, clock, poll, deadline)
            else:
                deadline = run_ready(run, flagged, used_ns, clock, poll, deadline)
        finally:
            spell.end_ns = now = clock()
        if now >= spell.due_ns:
            self.pause()
        return deadline


def _until(
    due: int,
    run: Run,
    flagged: Collection[int],
    used_ns: list[int],
    clock: Callable[[], int],
    poll: Callable[[int], int],
    deadline: int,
) -> int:
    """`run_ready`, which also ends once it is `due`."""

    def look(now: int) -> int:
        nonlocal deadline
        if now > deadline:
            deadline = poll(now)
        return STOP if deadline == STOP or now >= due else min(deadline, due)

    run_ready(run, flagged, used_ns, clock, look, min(deadline, due))
    return deadline
