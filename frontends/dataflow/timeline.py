"""The timeline: one HTML page that shows which stage ran when, at which worker, on which partition.

Workers record (`recording`), the controller says what happens beside (`happenings`); a `Timeline` takes both from all
Dataflows of a program, keeps a bounded number of spans, and makes the page. The page (`timeline_page.html`) has all
that it needs in itself, and says what was left out.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np

from frontends.dataflow.control_messages import Happened, Happening, Recorded
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.recording import COPIES_ROW, MEASURED, SEVERAL, SPAN, SPANS_PER_S_MAX, WORKER_ROW, Recorder
from frontends.dataflow.stages import Definition
from frontends.dataflow.wall_clock import by_wall_clock

Array = np.ndarray[Any, Any]

SPANS_SHOWN_MAX = 100_000
"""Of a page; more are put together, neighbours with neighbours, the shortest first."""
SPANS_KEPT_MAX = 2 * SPANS_SHOWN_MAX
"""What is kept until then."""
ROWS_MAX = 10_000
"""Rows of a page: one of each worker, and one of each partition that it has run tasks on."""
HAPPENINGS_MAX = 10_000
SPANS_PER_S_OF_ALL = 100_000
"""What all workers of a Dataflow record in a second, about."""
COPIES = -2
"""In place of a stage, in totals: copies of replicated values that were received."""
MS = 1_000_000

KEPT = np.dtype([("row", "<i4"), ("is_mixed", "?"), *MEASURED])
"""A span as it is kept: of several stages, if it is mixed; `stage` is then the one that took the most time."""


@dataclass(slots=True)
class _Row:
    number: int
    flow: int
    worker: int
    group: int
    index: int


@dataclass(slots=True)
class _Totals:
    """Of a stage, over the tasks that were noted one by one."""

    tasks: int = 0
    busy_ns: int = 0


@dataclass(slots=True)
class Flow:
    """What is recorded of one Dataflow."""

    timeline: Timeline
    number: int
    definition: Definition
    plane: str
    workers: int
    where: dict[int, str] = field(default_factory=dict)
    totals: dict[int, _Totals] = field(default_factory=dict)

    @property
    def spans_per_s(self) -> int:
        """What each worker may record."""
        return max(10, min(SPANS_PER_S_MAX, SPANS_PER_S_OF_ALL // self.workers))

    def recorder(self) -> Recorder:
        """For a worker that is this process."""
        where = f"{os.uname().nodename} {os.getpid()}"

        def deliver(spans: Array) -> None:
            self.timeline.add(self, 0, where, spans)

        return Recorder(self.spans_per_s, by_wall_clock(deliver))

    def record(self, message: Recorded | Happened) -> None:
        """What a worker or the controller has sent."""
        if isinstance(message, Happened):
            self.timeline.happened(self, message.happenings)
            return
        if len(message.spans) % SPAN.itemsize:
            raise ProtocolError(f"worker {message.worker} sent {len(message.spans)} bytes of spans, which is no number")
        self.timeline.add(self, message.worker, message.where, np.frombuffer(message.spans, SPAN))


class Timeline:
    """Of one program, which may make several Dataflows. It may be told from several threads."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.thinned_ns = 0
        """Spans shorter than that were put together; 0: none."""
        self._flows: list[Flow] = []
        self._rows: dict[tuple[int, int, int, int], _Row] = {}
        self._chunks: list[Array] = []
        self._count = 0
        self._happenings: list[tuple[int, Happening]] = []
        self._left_out_rows = self._left_out_happenings = 0
        self._tasks = self._tasks_noted = 0
        self._lock = threading.Lock()

    @property
    def tasks(self) -> int:
        """How many have run."""
        return self._tasks

    def flow(self, definition: Definition, plane: str, workers: int) -> Flow:
        """For another Dataflow. `definition` is looked at again when the page is made."""
        with self._lock:
            self._flows.append(Flow(self, len(self._flows), definition, plane, workers))
            return self._flows[-1]

    # ---- what comes -------------------------------------------------------------------------------

    def happened(self, flow: Flow, happenings: list[Happening]) -> None:
        with self._lock:
            room = HAPPENINGS_MAX - len(self._happenings)
            self._happenings += [(flow.number, happening) for happening in happenings[:room]]
            self._left_out_happenings += max(0, len(happenings) - room)

    def add(self, flow: Flow, worker: int, where: str, spans: Array) -> None:
        """Spans of a worker (`recording.SPAN`), times since 1970."""
        with self._lock:
            flow.where[worker] = where
            is_worker = spans["group"] == WORKER_ROW
            self._tasks += int(spans["tasks"][is_worker].sum())
            self._count_stages(flow, spans[~is_worker])
            rows = self._rows_of(flow, worker, spans)
            kept = np.zeros(len(spans), KEPT)
            kept["row"] = rows
            for name, _ in MEASURED:
                kept[name] = spans[name]
            self._chunks.append(kept[rows >= 0])
            self._count += len(self._chunks[-1])
            if self._count > SPANS_KEPT_MAX:
                self._thin()

    def _count_stages(self, flow: Flow, spans: Array) -> None:
        noted = spans[spans["tasks"] > 0]
        self._tasks_noted += int(noted["tasks"].sum())
        stages = np.where(noted["group"] == COPIES_ROW, COPIES, noted["stage"])
        for stage in np.unique(stages):
            mine = noted[stages == stage]
            totals = flow.totals.setdefault(int(stage), _Totals())
            totals.tasks += int(mine["tasks"].sum())
            totals.busy_ns += int(mine["busy_ns"].sum())

    def _rows_of(self, flow: Flow, worker: int, spans: Array) -> Array:
        """The row of each span; -1, if there is no room for its row."""
        places, inverse = np.unique(spans[["group", "index"]], return_inverse=True)
        numbers = []
        for group, index in places.tolist():
            key = (flow.number, worker, group, index)
            row = self._rows.get(key)
            if row is None and len(self._rows) < ROWS_MAX:
                row = self._rows[key] = _Row(len(self._rows), *key)
            numbers.append(-1 if row is None else row.number)
            self._left_out_rows += row is None
        return np.array(numbers, np.int64)[inverse]

    def _thin(self) -> None:
        """Put spans together until half of what may be kept is left."""
        spans = np.concatenate(self._chunks)
        width_ns = max(self.thinned_ns, 1_000)
        while len(spans) > SPANS_SHOWN_MAX:
            width_ns *= 2
            spans = merged(spans, width_ns)
            self.thinned_ns = width_ns
        self._chunks, self._count = [spans], len(spans)

    # ---- the page ---------------------------------------------------------------------------------

    def page(self) -> str:
        """The HTML page."""
        with self._lock:
            if self._count > SPANS_SHOWN_MAX:
                self._thin()
            data = self._data()
        template = (resources.files("frontends.dataflow") / "timeline_page.html").read_text("utf-8")
        return template.replace("/*DATA*/", as_script(data))

    def _data(self) -> dict[str, Any]:
        spans = np.concatenate([np.zeros(0, KEPT), *self._chunks])
        rows = sorted(self._rows.values(), key=lambda row: (row.flow, row.worker, _order(row.group), row.index))
        place = np.zeros(len(rows), np.int64)
        for position, row in enumerate(rows):
            place[row.number] = position
        spans["row"] = place[spans["row"]]
        spans = spans[np.lexsort((spans["begin_ns"], spans["row"]))]
        happenings = [happening for _, happening in self._happenings]
        begins = [*spans["begin_ns"].tolist(), *(happening.begin_ns for happening in happenings)]
        origin_ns = min(begins, default=time.time_ns())
        names = _Names(self._flows)
        stages = self._stages(names, np.array([row.flow for row in rows], np.int64)[spans["row"]], spans["stage"])
        return {
            "title": self.title,
            "began": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(origin_ns / 1e9)),
            "flows": [
                {"plane": flow.plane, "workers": flow.workers, "partitions": max(1, _partitions(flow.definition))}
                for flow in self._flows
            ],
            "rows": [
                {"flow": row.flow, "worker": row.worker, "group": min(row.group, 0), "label": self._label(row)}
                for row in rows
            ],
            "starts": np.searchsorted(spans["row"], np.arange(len(rows) + 1)).tolist(),
            "begin": (spans["begin_ns"] - origin_ns).tolist(),
            "length": (spans["end_ns"] - spans["begin_ns"]).tolist(),
            "stage": stages.tolist(),
            "mixed": spans["is_mixed"].astype(int).tolist(),
            "first": spans["first"].tolist(),
            "blocks": (spans["last"] - spans["first"]).tolist(),
            "tasks": spans["tasks"].tolist(),
            "busy": spans["busy_ns"].tolist(),
            "stages": names.rows(),
            "happenings": [
                {
                    "kind": one.kind, "flow": flow, "begin": one.begin_ns - origin_ns, "end": one.end_ns - origin_ns,
                    "worker": one.worker, "other": one.other, "text": one.text,
                    "from": self._position(place, flow, one.other, one),
                    "to": self._position(place, flow, one.worker, one),
                    "partition": _place_name(self._flows[flow].definition, one.group, one.index),
                }
                for flow, one in self._happenings
            ],
            "tasks_run": self._tasks,
            "tasks_noted": self._tasks_noted,
            "notes": self._notes(),
        }  # fmt: skip

    def _stages(self, names: _Names, flows: Array, stages: Array) -> Array:
        """The page's number of each span's stage."""
        if not len(stages):
            return stages
        known, inverse = np.unique(np.stack([flows, stages], axis=1), axis=0, return_inverse=True)
        return np.array([names.stage(flow, stage) for flow, stage in known.tolist()], np.int64)[inverse.reshape(-1)]

    def _label(self, row: _Row) -> str:
        flow = self._flows[row.flow]
        if row.group == WORKER_ROW:
            where = flow.where.get(row.worker, "")
            named = "this process" if flow.plane == "inline" else f"worker {row.worker}"
            return f"{f'Dataflow {row.flow + 1}, ' if len(self._flows) > 1 else ''}{named} ({where})"
        if row.group == COPIES_ROW:
            return "copies"
        return _place_name(flow.definition, row.group, row.index)

    def _position(self, place: Array, flow: int, worker: int, happening: Happening) -> int:
        """The row of a partition that moved, at a worker; -1 if there is none."""
        row = self._rows.get((flow, worker, happening.group, happening.index))
        return -1 if row is None else int(place[row.number])

    def _notes(self) -> list[str]:
        """What the page does not show."""
        notes = []
        if self._tasks > self._tasks_noted:
            notes.append(
                f"{self._tasks_noted:,} of {self._tasks:,} tasks were recorded one by one. Of the others the page has "
                "spells: from when to when, which blocks, and how long each partition took; their stages are not told "
                "apart (hatched)."
            )
        if self.thinned_ns:
            notes.append(
                f"There were more than {SPANS_SHOWN_MAX:,} spans: neighbours shorter than {self.thinned_ns / MS:,.3g} "
                "ms are put together, in the colour of the stage that took the most time, fainter the less of the time "
                "was work."
            )
        if self._left_out_rows:
            notes.append(f"Only the first {ROWS_MAX:,} rows are shown: spans of other partitions are left out.")
        if self._left_out_happenings:
            notes.append(
                f"Only the first {HAPPENINGS_MAX:,} events are shown; {self._left_out_happenings:,} are left out."
            )
        if any(flow.plane != "inline" for flow in self._flows):
            notes.append(
                "Workers tell of their tasks twice a second: of one that was lost the last half second is missing. "
                "Times of several machines are as right as their clocks."
            )
        return notes


def _order(group: int) -> tuple[int, int]:
    """Worker's own row first, then partitions, then copies."""
    return (0, 0) if group == WORKER_ROW else (2, 0) if group == COPIES_ROW else (1, group)


def _partitions(definition: Definition) -> int:
    return max((spec.partitions for spec in definition.datasets), default=1)


def _place_name(definition: Definition, group: int, index: int) -> str:
    """A partition, by the first dataset of its group."""
    if group < 0:
        return ""
    named = definition.datasets[group].name if group < len(definition.datasets) else f"group {group}"
    return f"{named} {index}"


class _Names:
    """Numbers of stages over all Dataflows: stages of the same name have the same number, and colour."""

    def __init__(self, flows: list[Flow]) -> None:
        self._flows = flows
        self._numbers: dict[tuple[bool, str], int] = {}
        self._totals: list[dict[str, Any]] = []
        for flow in flows:
            for stage, totals in sorted(flow.totals.items()):
                row = self._totals[self._number(flow.number, stage)]
                row["tasks"] += totals.tasks
                row["busy"] += totals.busy_ns

    def _number(self, flow: int, stage: int) -> int:
        stages = self._flows[flow].definition.stages
        if stage < 0:
            name = "several stages" if stage == SEVERAL else "(copies received)"
        else:
            name = stages[stage].name if stage < len(stages) else f"stage {stage}"
        key = (stage < 0, name)
        if key not in self._numbers:
            self._numbers[key] = len(self._totals)
            self._totals.append({"name": name, "several": stage == SEVERAL, "tasks": 0, "busy": 0})
        return self._numbers[key]

    def stage(self, flow: int, stage: int) -> int:
        """The page's number of a stage; -1 of several."""
        return -1 if stage == SEVERAL else self._number(flow, stage)

    def rows(self) -> list[dict[str, Any]]:
        return self._totals


def as_script(data: Any) -> str:
    """JSON that may stand in a `<script>` of an HTML page, whatever text is in it."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def merged(spans: Array, width_ns: int) -> Array:
    """Spans shorter than `width_ns` put together with those of their row that begin within the same stretch of time.

    The first begin and the last end, the sums of tasks and of their time; the stage that took the most of it.
    """
    is_short = spans["end_ns"] - spans["begin_ns"] < width_ns
    kept, short = spans[~is_short], spans[is_short]
    if not len(short):
        return spans
    bucket = short["begin_ns"] // width_ns
    order = np.lexsort((short["stage"], bucket, short["row"]))
    short, bucket = short[order], bucket[order]
    is_new = np.ones(len(short), bool)
    is_new[1:] = (np.diff(bucket) != 0) | (np.diff(short["row"]) != 0)
    starts = is_new.nonzero()[0]
    made = short[starts].copy()
    for name, fold in (("begin_ns", np.minimum), ("end_ns", np.maximum), ("first", np.minimum), ("last", np.maximum)):
        made[name] = fold.reduceat(short[name], starts)
    for name in ("tasks", "busy_ns"):
        made[name] = np.add.reduceat(short[name], starts)
    # The time of each stage within each of them.
    is_stage = is_new.copy()
    is_stage[1:] |= np.diff(short["stage"]) != 0
    stage_starts = is_stage.nonzero()[0]
    busy = np.add.reduceat(short["busy_ns"], stage_starts)
    group = np.cumsum(is_new)[stage_starts] - 1
    by_busy = np.lexsort((busy, group))
    is_last = np.ones(len(by_busy), bool)
    is_last[:-1] = np.diff(group[by_busy]) != 0
    made["stage"] = short["stage"][stage_starts[by_busy[is_last]]]
    made["is_mixed"] = np.logical_or.reduceat(short["is_mixed"], starts) | (np.bincount(group) > 1)
    return np.concatenate([kept, made])
