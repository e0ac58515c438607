"""The timeline's page: it stands alone, names cannot break out of it, and it is bounded and says what is left out."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from html.parser import HTMLParser
from random import Random
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow, ProtocolError, timeline
from frontends.dataflow.control_messages import (
    Dismiss,
    Enter,
    GivenUp,
    Happened,
    Happening,
    Layout,
    Leaving,
    Over,
    Recorded,
    Shipped,
)
from frontends.dataflow.controller_core import ControllerCore
from frontends.dataflow.controller_effects import Complete, Send, Tell
from frontends.dataflow.happenings import KINDS, Witness
from frontends.dataflow.messages import Arrived, Move
from frontends.dataflow.recording import SEVERAL, SPAN, SPANS_PER_S_MAX, WORKER_ROW
from frontends.dataflow.run_settings import RunSettings, put_in_force
from frontends.dataflow.stages import Definition
from frontends.dataflow.timeline import KEPT, Flow, Timeline, merged
from tests.support.dataflow_random import random_program
from tests.support.dataflow_world import World

Array = np.ndarray[Any, Any]
HOSTILE = "</script><script>alert(1)</script><!--&amp;\"'\u2028"


class Page(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)

    @property
    def data(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.scripts[0])
        return made


def flow_of(made: Timeline, plane: str = "local") -> Flow:
    return made.flow(Definition(), plane, 2)


def spans_of(*lines: tuple[int, ...]) -> Array:
    return np.array(list(lines), SPAN)


def recorded(**names: str) -> Timeline:
    """Of a program in this process, of two stages and a signal."""
    made = Timeline(names.get("title", "mine.py"))
    with put_in_force(RunSettings(timeline=made)):
        df = Dataflow(partitions=3, progress=False)
    X = df.partition(np.zeros((6, 2)), name=names.get("dataset", "X"))
    count = df.single(np.zeros(1), name="count")

    @df.stage(writes=[X], name=names.get("stage", "double"))
    def double(x: Array) -> None:
        x *= 2

    @df.stage(writes=[count])
    def tick(count: Array) -> None:
        count += 1

    @df.signal(on=count)
    def again(count: Array) -> Any:
        return count[0] < 4

    def program() -> None:
        double()
        tick()
        while again():
            double()
            tick()

    df.run(program)
    df.close()
    return made


def test_a_program_in_this_process_has_a_row_for_each_partition_and_one_for_blocks() -> None:
    data = Page(recorded().page()).data
    assert [row["label"] for row in data["rows"]][1:] == ["X 0", "X 1", "X 2", "count 0"]
    assert data["rows"][0]["label"].startswith("this process (")
    names = [stage["name"] for stage in data["stages"]]
    assert {stage["name"]: stage["tasks"] for stage in data["stages"]} == {"double": 12, "tick": 4, "again": 4}
    assert data["tasks_run"] == data["tasks_noted"] == 20 and not data["notes"]
    of_rows = [
        [names[stage] for stage in data["stage"][begin:end]]
        for begin, end in zip(data["starts"], data["starts"][1:], strict=False)
    ]
    assert of_rows == [["again"] * 4, *[["double"] * 4] * 3, ["tick", "again"] * 4]
    assert data["first"][:4] == [0, 1, 2, 3] and data["tasks"][:4] == [5] * 4
    assert all(begin >= 0 for begin in data["begin"]) and all(length >= 0 for length in data["length"])


def test_names_cannot_break_out_of_the_page() -> None:
    made = recorded(title=HOSTILE, stage=HOSTILE, dataset=HOSTILE)
    flow = flow_of(made)
    flow.record(Recorded(0, HOSTILE, spans_of((WORKER_ROW, 0, 0, 0, 0, 5, 6, 1, 1)).tobytes()))
    flow.record(Happened([Happening("leave", 5, 5, 0, text=HOSTILE), Happening(HOSTILE, 5, 5)]))
    text = made.page()
    page = Page(text)
    assert "alert(1)</script>" not in text and [tag for tag, _ in page.tags].count("script") == 2
    data = page.data
    assert data["title"] == HOSTILE and data["stages"][0]["name"] == HOSTILE
    assert data["rows"][1]["label"] == f"{HOSTILE} 0" and data["happenings"][0]["text"] == HOSTILE


def test_the_page_stands_alone() -> None:
    text = recorded().page()
    page = Page(text)
    attributes = {name for _, attributes in page.tags for name in attributes}
    assert not attributes & {"src", "href", "srcset", "action", "data"} and "url(" not in text
    assert "//" not in text.replace("// ", "").replace("//\n", "").partition("application/json")[0]
    (policy,) = [each["content"] for tag, each in page.tags if tag == "meta" and "http-equiv" in each]
    assert policy is not None and policy.startswith("default-src 'none'")
    assert "innerHTML" not in text and "/*DATA*/" not in text


def test_a_timeline_of_nothing_is_a_page() -> None:
    data = Page(Timeline("empty").page()).data
    assert data["rows"] == data["begin"] == data["happenings"] == [] and data["tasks_run"] == 0


# ---- bounds -------------------------------------------------------------------------------------------


def many(count: int, row_count: int = 4) -> Array:
    """Tasks of a microsecond each, one after the other, of three stages."""
    spans = np.zeros(count, SPAN)
    number = np.arange(count)
    spans["index"], spans["stage"] = number % row_count, number % 3
    spans["begin_ns"] = number * 1_000
    spans["end_ns"] = spans["begin_ns"] + 900
    spans["first"] = spans["last"] = number // 100
    spans["tasks"], spans["busy_ns"] = 1, 900
    return spans


def test_more_spans_than_may_be_shown_are_put_together_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "SPANS_SHOWN_MAX", 1_000)
    monkeypatch.setattr(timeline, "SPANS_KEPT_MAX", 2_000)
    made = Timeline("many")
    flow = flow_of(made)
    for part in np.array_split(many(30_000), 20):
        made.add(flow, 0, "here", part)
        assert sum(map(len, made._chunks)) <= 2_000
    data = Page(made.page()).data
    assert len(data["begin"]) <= 1_000 and sum(data["tasks"]) == 30_000 and sum(data["busy"]) == 30_000 * 900
    assert any("1,000 spans" in note for note in data["notes"])
    assert max(np.array(data["begin"]) + data["length"]) == 29_999 * 1_000 + 900
    assert {stage["name"]: stage["tasks"] for stage in data["stages"]} == {f"stage {n}": 10_000 for n in range(3)}


@pytest.mark.parametrize("count", [0, 1, 2, *range(10, 60, 7)])
def test_merging_keeps_sums_and_ends_and_names_the_stage_that_took_most(count: int) -> None:
    for seed in range(20):
        check_merging(count, np.random.default_rng((count, seed)))


def check_merging(count: int, chance: np.random.Generator) -> None:
    """Random spans of three rows, put together at some width."""
    spans = np.zeros(count, KEPT)
    spans["row"], spans["stage"] = chance.integers(0, 3, count), chance.integers(-1, 3, count)
    spans["begin_ns"] = chance.integers(0, 1_000, count)
    spans["busy_ns"] = chance.integers(1, 200, count)
    spans["end_ns"] = spans["begin_ns"] + spans["busy_ns"]
    spans["tasks"], spans["first"] = 1, chance.integers(0, 9, count)
    spans["last"] = spans["first"]
    width_ns = int(chance.integers(1, 300))
    made = merged(spans, width_ns)
    for row in range(3):
        before, after = spans[spans["row"] == row], made[made["row"] == row]
        assert before["tasks"].sum() == after["tasks"].sum() and before["busy_ns"].sum() == after["busy_ns"].sum()
        if len(before):
            assert before["begin_ns"].min() == after["begin_ns"].min()
            assert before["end_ns"].max() == after["end_ns"].max()
        for one in after:
            if one["tasks"] == 1:
                continue
            mine = before[
                (before["begin_ns"] // width_ns == one["begin_ns"] // width_ns)
                & (before["end_ns"] - before["begin_ns"] < width_ns)
            ]
            busy = {int(stage): mine["busy_ns"][mine["stage"] == stage].sum() for stage in set(mine["stage"].tolist())}
            assert busy[int(one["stage"])] == max(busy.values())
            assert bool(one["is_mixed"]) == (len(busy) > 1)
            assert (one["first"], one["last"]) == (mine["first"].min(), mine["last"].max())


def test_rows_and_events_beyond_the_most_are_left_out_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "ROWS_MAX", 3)
    monkeypatch.setattr(timeline, "HAPPENINGS_MAX", 2)
    made = Timeline("wide")
    flow = flow_of(made)
    made.add(flow, 0, "here", many(40, row_count=5))
    flow.record(Happened([Happening("join", 1, 1, worker) for worker in range(5)]))
    data = Page(made.page()).data
    assert len(data["rows"]) == 3 and len(data["begin"]) == 24 and len(data["happenings"]) == 2
    assert any("first 3 rows" in note for note in data["notes"])
    assert any("first 2 events" in note and "3 are left out" in note for note in data["notes"])


def test_spells_are_said_to_be_spells() -> None:
    made = Timeline("short")
    flow = flow_of(made)
    made.add(flow, 0, "here", spans_of((WORKER_ROW, 0, 1, 0, 9, 0, 50, 990, 40), (0, 0, SEVERAL, 0, 9, 0, 50, 0, 40)))
    made.add(flow, 0, "here", spans_of((WORKER_ROW, 0, 1, 10, 10, 50, 60, 10, 9)))
    made.add(flow, 0, "here", spans_of(*[(0, 0, 0, 10, 10, 50 + n, 51 + n, 1, 1) for n in range(10)]))
    data = Page(made.page()).data
    assert (data["tasks_run"], data["tasks_noted"]) == (1_000, 10)
    assert any("10 of 1,000 tasks were recorded one by one" in note for note in data["notes"])


def test_spans_of_no_whole_number_are_refused_and_workers_share_what_is_recorded() -> None:
    made = Timeline("bad")
    with pytest.raises(ProtocolError, match="worker 3 sent 7 bytes"):
        flow_of(made).record(Recorded(3, "there", b"1234567"))
    assert made.flow(Definition(), "local", 1).spans_per_s == SPANS_PER_S_MAX
    assert made.flow(Definition(), "local", 1_000).spans_per_s == 100


def test_stages_of_one_name_in_two_dataflows_have_one_number_and_rows_say_whose_they_are() -> None:
    made = recorded()
    with put_in_force(RunSettings(timeline=made)), Dataflow(partitions=1, progress=False) as df:
        X = df.partition(np.zeros(1), name="X")
        double = df.stage(writes=[X], name="double")(lambda X: None)
        df.run(double)
    data = Page(made.page()).data
    assert [stage["name"] for stage in data["stages"]].count("double") == 1
    assert [row["flow"] for row in data["rows"]] == [0] * 5 + [1] * 2
    assert data["rows"][5]["label"].startswith("Dataflow 2, this process")


# ---- what happens beside tasks ------------------------------------------------------------------------


def enter(epoch: int, until: int = 0, *, joins: bool = False) -> Enter:
    return Enter(epoch, Shipped(0, Layout((), ()), b"", b""), until, {}, [], (0, 1), [], [], [], [], joins=joins)


def test_the_controllers_effects_tell_of_epochs_joins_moves_and_leaves() -> None:
    now = iter(range(10, 1000, 10))
    witness = Witness(lambda: next(now))
    for worker in (0, 1):
        witness.effect(Send(worker, enter(0)), 0)
    witness.effect(Send(1, Move(0, 4, 2, 7, 0)), 0)
    witness.message(1, Arrived(0, 4, 2, 6))  # Of an earlier version.
    witness.message(1, Arrived(0, 4, 2, 7))
    witness.effect(Send(1, Move(0, 4, 3, 7, 0)), 0)
    witness.lost(1, "the link was reset")
    witness.effect(Send(0, enter(1, until=5)), 1)
    witness.effect(Send(2, enter(1, until=9, joins=True)), 1)
    witness.effect(Complete((0, 5), {}), 1)
    witness.message(0, Leaving(0, 2.0))
    witness.effect(Send(0, Dismiss("its slot is another user's turn")), 1)
    witness.effect(Tell(Over(0, 1, b"", (2,))), 1)
    witness.effect(Tell(GivenUp(1, b"", "it was rolled back")), 1)
    seen = witness.take()
    assert [(one.kind, one.worker) for one in seen] == [
        ("begin", -1), ("join", 0), ("join", 1), ("move", 1), ("lost", 1), ("move", 1), ("rollback", -1), ("join", 2),
        ("snapshot", -1), ("yield", 0), ("leave", 0), ("over", -1), ("failed", -1),
    ]  # fmt: skip
    assert {one.kind for one in seen} == set(KINDS) and not witness.take()
    moved, unfinished = (one for one in seen if one.kind == "move")
    assert (moved.other, moved.group, moved.index, moved.text) == (0, 4, 2, "") and moved.begin_ns < moved.end_ns
    assert (unfinished.index, unfinished.text) == (3, "it did not arrive")
    assert "block 5 of run 0" in next(one.text for one in seen if one.kind == "rollback")


@pytest.mark.parametrize("seed", range(4))
def test_what_a_real_controller_does_is_seen(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    witness = Witness(lambda: next(clock))
    take, receive = ControllerCore.take_effects, ControllerCore.receive

    def taken(core: ControllerCore) -> list[Any]:
        effects = take(core)
        for effect in effects:
            witness.effect(effect, core.rollbacks)
        return effects

    def received(core: ControllerCore, number: int, message: Any, now_s: float) -> None:
        witness.message(number, message)
        receive(core, number, message, now_s)

    monkeypatch.setattr(ControllerCore, "take_effects", taken)
    monkeypatch.setattr(ControllerCore, "receive", received)
    df, program = random_program(seed)
    world = World(df, program, 3, Random(seed))
    world.run(moves=20, joins=2, snapshots=3, crashes=2)
    seen = Counter(one.kind for one in witness.take())
    assert seen["move"] == world.moves > 0 and seen["over"] == world.runs_over == 1
    assert 0 < seen["rollback"] <= world.controller.rollbacks
    assert seen["join"] >= 3 and seen["snapshot"] == world.completed


def test_a_move_is_drawn_between_the_rows_of_the_partition() -> None:
    made = Timeline("moves")
    flow = flow_of(made)
    for worker in (0, 1):
        made.add(flow, worker, "here", many(8, row_count=2))
    flow.record(Happened([Happening("move", 5, 9, 1, 0, 0, 1), Happening("move", 5, 9, 1, 0, 0, 7)]))
    data = Page(made.page()).data
    first, second = data["happenings"]
    assert [data["rows"][first[end]]["worker"] for end in ("from", "to")] == [0, 1]
    assert data["rows"][first["from"]]["label"] == "home 1" == first["partition"]
    assert (second["from"], second["to"]) == (-1, -1)
