"""Large inputs that are at other nodes: where they are sought, and which attempts wait for them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import pytest

from node_monitor import inputs
from node_monitor.blobs.lack_of_room import LackOfRoom
from simulator.soak.blobs import FakeBlobs
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, NodeCore, OneJob, far
from tests.support.recorder import reserve

CANCELLED = TaskStatus.CANCELLED
HASH = "ab" * 32


def ref(*at: str) -> BlobRef:
    return BlobRef(HASH, 9, at)


@pytest.fixture
def node() -> Iterator[NodeCore]:
    """A node of four slots; each test leaves nothing under way."""
    node = NodeCore(4, [MANY])
    yield node
    assert not node.core.inputs.fetching


def launch(node: NodeCore, number: int, payload: BlobRef, user: str = "anna", job: str = "j") -> None:
    """Attempt `number` of the job j, for which it needs this."""
    node.receive(reserve(number, job=job, user=user))
    (ask,) = node.take(m.GetTasks)
    node.receive(m.Launch(ask.ask, job, 0, number, number, payload))


def answer(node: NodeCore, reason: str = "", user: str = "anna") -> None:
    """A request has this answer."""
    node.core.fetched(user, HASH, reason, node.now_s)
    node.settle()


def sought(node: NodeCore) -> list[tuple[str, ...]]:
    """Where the data were asked for since the last call."""
    places = [one.at for one in node.outbox.fetches]
    node.outbox.fetches.clear()
    return places


def handed_back(node: NodeCore) -> list[tuple[int, tuple[str, ...]]]:
    return [(back.attempt, back.missing) for back in node.take(m.HandBack)]


def test_each_place_is_tried_once_before_the_attempts_are_handed_back(node: NodeCore) -> None:
    for number, at in enumerate(["far:1", "far:2", "far:2", "far:3"], 1):
        launch(node, number, ref(at))
    places = []
    while found := sought(node):
        places += found
        assert handed_back(node) == []
        answer(node, "404")
    assert places == [("far:1",), ("far:2",), ("far:3",)]
    assert handed_back(node) == [(number, (HASH,)) for number in (1, 2, 3, 4)]


def test_what_was_fetched_for_a_placed_task_is_told_as_bytes_a_second_from_when_it_had_its_slot(
    node: NodeCore,
) -> None:
    node.core.scheduler_up("f", plane=m.FLOW)
    node.receive(m.Lead(m.FLOW, 1), scheduler="f")
    task = m.LaunchPlaced("p", 0, 1, 1, BlobRef(HASH, 4_000, ("far:1",)), 1, "anna", 1.0, 0, "many", None)
    node.receive(m.Common("p", 0, b""), task, scheduler="f")
    assert sought(node) == [("far:1",)]
    node.now_s = 2.0
    node.blobs.add(ref())
    answer(node)
    (run,) = node.take(x.Run)
    assert run.measure
    node.now_s = 10.0
    node.done("p0", run.run, service_s=8.0)
    (report,) = node.take(m.Report)
    assert report.used == m.Used(None, None, 400.0)


@pytest.mark.parametrize("right_first", [False, True])
def test_who_states_a_wrong_size_has_nobody_else_handed_back(node: NodeCore, right_first: bool) -> None:
    right, wrong = BlobRef(HASH, 9, ("far:1",)), BlobRef(HASH, 8, ("far:1",))
    for number, one in enumerate([right, wrong] if right_first else [wrong, right], 1):
        launch(node, number, one)
    asked = [node.outbox.fetches.pop()]
    if not right_first:
        answer(node, "it is more than 8 bytes")
        asked.append(node.outbox.fetches.pop())
    assert asked == ([right] if right_first else [wrong, right]) and handed_back(node) == []
    node.blobs.add(right)
    answer(node)
    assert len(node.take(x.Run)) == 2


def test_a_place_that_an_attempt_named_is_tried_though_that_attempt_has_left(node: NodeCore) -> None:
    launch(node, 1, ref("far:1"))
    launch(node, 2, ref("far:2"))
    node.receive(m.CancelAttempt("j", 2))
    sought(node)
    answer(node, "far:1: 404")
    assert sought(node) == [("far:2",)] and handed_back(node) == []
    node.blobs.add(ref())
    answer(node)
    assert len(node.take(x.Run)) == 1


def test_the_answer_for_an_attempt_that_has_left_is_not_the_answer_for_the_next(node: NodeCore) -> None:
    """The next attempt names another node, which is asked while the first answer is on its way."""
    launch(node, 1, ref("far:1"))
    node.receive(m.CancelAttempt("j", 1))
    launch(node, 2, ref("far:2"))
    assert sought(node) == [("far:1",), ("far:2",)]
    answer(node, "far:1: 404")
    assert handed_back(node) == []
    node.blobs.add(ref())
    answer(node)
    assert len(node.take(x.Run)) == 1


def test_an_attempt_that_names_the_same_place_is_handed_back_with_its_own_answer(node: NodeCore) -> None:
    """The first one's request was given up as it left, and its answer says nothing of the place."""
    launch(node, 1, ref("far:1"))
    node.receive(m.CancelAttempt("j", 1))
    launch(node, 2, ref("far:1"))
    answer(node, "nobody waits for it any more")
    assert handed_back(node) == []
    answer(node, "far:1: 404")
    assert handed_back(node) == [(2, (HASH,))]


def test_nothing_is_tried_for_nobody(node: NodeCore) -> None:
    launch(node, 1, ref("far:1"))
    launch(node, 2, ref("far:2"))
    for number in (1, 2):
        node.receive(m.CancelAttempt("j", number))
    sought(node)
    answer(node, "far:1: 404")
    assert sought(node) == [] == handed_back(node)


def test_places_beyond_the_maximum_are_not_remembered(node: NodeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "SOURCES_MAX", 2)
    for number in (1, 2, 3):
        launch(node, number, ref(f"far:{number}"))
    places = sought(node)
    answer(node, "far:1: 404")
    places += sought(node)
    answer(node, "far:2: 404")
    assert places == [("far:1",), ("far:2",)] and len(handed_back(node)) == 3


def test_where_one_user_says_that_data_are_does_not_concern_another(node: NodeCore) -> None:
    launch(node, 1, ref("mute:1"), "mallory", "m")
    launch(node, 2, ref("far:2"))
    assert sought(node) == [("mute:1",), ("far:2",)]
    answer(node, "no room", "mallory")
    assert handed_back(node) == [(1, (HASH,))]
    node.blobs.add(ref())
    answer(node)
    assert len(node.take(x.Run)) == 1


def test_a_task_holds_its_place_until_all_its_large_inputs_are_here() -> None:
    rig = OneJob()
    rig.receive(m.Common("j", 0, far("c")), m.Input("j", 7, far("a")), m.Input("j", 8, b"small"))
    (ask,) = rig.reserve(1, 2)
    rig.launch(1, ask.ask, far("f"), ((7, 2),))
    assert {one.hash[0] for one in rig.outbox.fetches} == {"c", "f", "a"} and rig.core.free_slots == 0
    for name in "cf":
        rig.fetched(name)
        assert not rig.take(x.Run)
    rig.fetched("a")
    (run,) = rig.take(x.Run)
    assert isinstance(run.payload, x.File) and run.inputs == [rig.blobs.file("a" * 64), b"small"]
    assert rig.blobs.pins
    rig.receive(m.ForgetJob("j"))
    rig.done("p0", 1)
    assert not rig.blobs.pins


@pytest.mark.parametrize("inputs", [((7, 1),), ((7, 2),), ((0, 1 << 62),), ((0, 1 << 62), (0, -(1 << 62)))])
def test_a_task_whose_inputs_have_not_come_is_handed_back_and_leaves_its_slot(
    inputs: tuple[tuple[int, int], ...],
) -> None:
    rig = OneJob()
    if inputs != ((7, 1),):
        rig.receive(m.Input("j", 7, b"one"))
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, b"", inputs)
    (back,) = rig.take(m.HandBack)
    assert (back.attempt, back.reason) == (1, "its inputs were not sent before it")
    assert (rig.core.free_slots, rig.take(x.Run)) == (1, [])
    rig.receive(
        reserve(2, app=rig.app, job="j"), m.Launch(0, "j", 0, 2, 2, b"", inputs, ticket=3), reserve(3, app=rig.app)
    )
    assert len(rig.take(m.GetTasks)) == 1


def test_two_tasks_wait_for_one_fetch_and_a_third_finds_it_here() -> None:
    rig = OneJob(3)
    for attempt in (1, 2):
        (ask,) = rig.reserve(attempt)
        rig.launch(attempt, ask.ask, far("f"))
    assert len(rig.outbox.fetches) == 1
    rig.fetched("f")
    assert len(rig.take(x.Run)) == 2
    (ask,) = rig.reserve(3)
    rig.launch(3, ask.ask, far("f"))
    assert len(rig.take(x.Run)) == 1 and len(rig.outbox.fetches) == 1


def test_what_cannot_be_had_is_handed_back_by_name_and_this_was_no_start() -> None:
    rig = OneJob(2)
    for attempt in (1, 2):
        (ask,) = rig.reserve(attempt)
        rig.launch(attempt, ask.ask, far("f"))
    rig.fetched("f", "far:1: 404")
    backs = rig.take(m.HandBack)
    assert [(back.attempt, back.missing, back.reason) for back in backs] == [
        (1, ("f" * 64,), "far:1: 404"), (2, ("f" * 64,), "far:1: 404"),
    ]  # fmt: skip
    assert rig.core.free_slots == 2 and rig.core.counters.started == 0


def test_it_is_sought_where_it_is_said_to_be_by_now() -> None:
    """The result was produced again meanwhile, and the node told; then it was not there either."""
    rig = OneJob(2)
    rig.receive(m.Input("j", 7, far("f", "far:1")))
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, b"", ((7, 1),))
    rig.receive(m.Input("j", 7, far("f", "near:1")))
    rig.fetched("f", "far:1: 404")
    assert [one.at for one in rig.outbox.fetches] == [("far:1",), ("near:1",)] and not rig.take(m.HandBack)
    rig.fetched("f", "near:1: 404")
    assert len(rig.take(m.HandBack)) == 1


def test_a_task_that_waits_is_cancelled_at_once() -> None:
    rig = OneJob()
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, far("f"))
    rig.receive(m.CancelAttempt("j", 1))
    assert rig.reports() == [(1, CANCELLED, "it was cancelled")] and rig.core.free_slots == 1
    rig.fetched("f")
    assert not rig.take(x.Run)


@pytest.mark.parametrize("leaving", [False, True])
def test_a_task_that_waits_when_its_executor_dies_is_handed_back_and_this_was_no_start(leaving: bool) -> None:
    rig = OneJob()
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, far("f"))
    if leaving:
        rig.core.executor_leaving("p0", 0.0)
        rig.fetched("f")
    rig.died("p0")
    assert [back.missing for back in rig.take(m.HandBack)] == [()] and not rig.reports()
    rig.fetched("f")
    assert not rig.take(x.Run) and rig.core.free_slots == 1


def cancel(node: NodeCore, *attempts: int) -> None:
    for number in attempts:
        node.receive(m.CancelAttempt("j", number))


def test_what_nobody_waits_for_any_more_is_given_up_and_sought_anew_for_the_next(node: NodeCore) -> None:
    launch(node, 1, ref("mute:1"))
    launch(node, 2, ref("mute:1"))
    cancel(node, 1)
    assert not node.outbox.given_up
    cancel(node, 2)
    assert node.outbox.given_up == [(HASH, 9, "anna")]
    launch(node, 3, ref("far:1"))
    assert sought(node) == [("mute:1",), ("far:1",)]
    answer(node, "nobody waits for it any more")
    assert not handed_back(node)
    node.blobs.add(ref())
    answer(node)
    assert len(node.take(x.Run)) == 1


# ---- room for them -------------------------------------------------------------------------------


class SmallBlobs(FakeBlobs):
    """Large data of a node that may have no room for more.

    lack: what is said of inputs that are to come. unpinnable: names of those here that cannot be kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lack: LackOfRoom | None = None
        self.unpinnable = ""
        self.to_come: list[tuple[int, int, str]] = []
        """What was asked for room: bytes, bytes of all inputs, user."""
        self.touched: list[tuple[str, str]] = []

    def touch(self, hash_: str, user: str) -> bool:
        self.touched.append((hash_, user))
        return super().touch(hash_, user)

    def lack_of_room(self, size: int, in_all: int, user: str) -> LackOfRoom | None:
        self.to_come.append((size, in_all, user))
        return self.lack

    def pin(self, hash_: str, owner: Hashable, user: str) -> LackOfRoom | None:
        if hash_[0] in self.unpinnable:
            return LackOfRoom("its user has too much here")
        return super().pin(hash_, owner, user)


@pytest.fixture
def blobs() -> SmallBlobs:
    return SmallBlobs()


@pytest.fixture
def small(blobs: SmallBlobs) -> Iterator[NodeCore]:
    """A node of four slots whose room is `blobs`; after each test nothing is kept or under way."""
    node = NodeCore(4, [MANY], blobs=blobs)
    yield node
    assert not node.core.inputs.fetching and not node.core.inputs.holding and not blobs.pins
    assert node.core.free_slots == 4


def without_room(node: NodeCore) -> list[tuple[int, str, tuple[str, ...], str]]:
    """(attempt, reason, names of what is missing, whether that lasts) of each that was handed back."""
    backs = node.take(m.HandBack)
    return [(back.attempt, back.reason, tuple(one[0] for one in back.missing), back.no_room) for back in backs]


def test_leases_of_results_that_are_kept_for_a_user_begin_anew(small: NodeCore, blobs: SmallBlobs) -> None:
    small.receive(m.KeepData("anna", ("a" * 64, "b" * 64)))
    assert blobs.touched == [("a" * 64, "anna"), ("b" * 64, "anna")]


@pytest.mark.parametrize(("is_lasting", "kind"), [(False, m.NO_ROOM_NOW), (True, m.NO_ROOM_EVER)])
def test_a_task_for_whose_inputs_there_is_no_room_is_handed_back_at_once_and_nothing_fetched(
    small: NodeCore, blobs: SmallBlobs, is_lasting: bool, kind: str
) -> None:
    blobs.lack = LackOfRoom("9 bytes are in use", is_lasting=is_lasting)
    launch(small, 1, far("f"))
    assert without_room(small) == [(1, "no room: 9 bytes are in use", ("f",), kind)]
    assert not small.outbox.fetches and not small.core.counters.started


def test_a_fetch_that_finds_no_room_hands_back_all_who_wait_for_it(small: NodeCore) -> None:
    for number in (1, 2):
        launch(small, number, far("f"))
    small.core.fetched("anna", "f" * 64, LackOfRoom("9 bytes are in use"), 0.0)
    small.settle()
    reason = "no room: 9 bytes are in use"
    assert without_room(small) == [(1, reason, ("f",), m.NO_ROOM_NOW), (2, reason, ("f",), m.NO_ROOM_NOW)]


def test_what_is_here_or_has_come_and_cannot_be_kept_hands_the_task_back_and_lets_go_of_the_rest(
    small: NodeCore, blobs: SmallBlobs
) -> None:
    for name in "ab":
        blobs.add(far(name))
    small.receive(m.Input("j", 7, far("a")), m.Input("j", 8, far("b")), m.Input("j", 9, far("c")))
    reason = "no room: its user has too much here"
    for number, last, unpinnable in [(1, 8, "b"), (2, 9, "c")]:
        blobs.unpinnable = unpinnable
        small.receive(reserve(number, job="j"))
        (ask,) = small.take(m.GetTasks)
        small.receive(m.Launch(ask.ask, "j", 0, number, number, b"", ((7, 1), (last, 1))))
        if last == 9:
            blobs.add(far("c"))
            small.core.fetched("anna", "c" * 64, "", 0.0)
            small.settle()
    assert without_room(small) == [(1, reason, ("a", "b"), m.NO_ROOM_NOW), (2, reason, ("c",), m.NO_ROOM_NOW)]


def test_room_is_asked_for_what_nobody_of_the_user_fetches_yet(small: NodeCore, blobs: SmallBlobs) -> None:
    blobs.add(far("a"))
    size = far("a").size
    for number, (user, names) in enumerate([("anna", "f"), ("anna", "af"), ("anna", "fe"), ("bob", "f")], 1):
        first = number * 10
        small.receive(*[m.Input("j", first + place, far(name)) for place, name in enumerate(names)])
        small.receive(reserve(number, job="j", user=user))
        (ask,) = small.take(m.GetTasks)
        small.receive(m.Launch(ask.ask, "j", 0, number, number, b"", ((first, len(names)),)))
    assert blobs.to_come == [(size, size, "anna"), (0, 2 * size, "anna"), (size, 2 * size, "anna"), (size, size, "bob")]
    cancel(small, 1, 2, 3, 4)
    for user, name in [("anna", "f"), ("anna", "e"), ("bob", "f")]:
        small.core.fetched(user, name * 64, "nobody waits for it any more", 0.0)
    small.settle()


@pytest.mark.parametrize("ends", ["finishes", "fails", "loses its executor"])
def test_what_a_task_needs_is_kept_until_its_attempt_ends_though_its_job_goes_on(
    small: NodeCore, blobs: SmallBlobs, ends: str
) -> None:
    blobs.add(far("a"))
    blobs.add(far("b"))
    launch(small, 1, far("a"))
    launch(small, 2, far("b"))
    first, second = small.take(x.Run)
    assert sorted(map(sorted, blobs.pins.values())) == [["a" * 64], ["b" * 64]]
    if ends == "loses its executor":
        small.died("p0")
        small.core.executor_up("p1", "many", 4, 0.0)
        small.settle()
        return
    small.done("p0", first.run, TaskStatus.FINISHED if ends == "finishes" else TaskStatus.FAILED)
    assert list(blobs.pins.values()) == [{"b" * 64}]
    launch(small, 3, far("a"))
    assert len(blobs.pins) == 2
    (third,) = small.take(x.Run)
    for run in (second, third):
        small.done("p0", run.run)
