"""Tasks become attempts: whether they are let in, what their executor is sent, and what they wait for."""

from __future__ import annotations

import pytest

from node_monitor.attempts import RUNS, WAITS
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.wire import messages as m
from tests.support.node_core import OneJob, far


def ready(slots: int = 1, app: str = "pool") -> OneJob:
    """A node whose slots have asked for tasks of the job j (ask 1)."""
    node = OneJob(slots, app)
    node.reserve(1, slots)
    return node


def handed_back(node: OneJob) -> list[tuple[int, str]]:
    return [(back.attempt, back.reason) for back in node.take(m.HandBack)]


def test_the_executor_is_told_whose_task_it_is_and_its_number() -> None:
    node = ready(2, "many")
    node.receive(m.Launch(1, "j", 0, 7, 1, b"seven"), m.Launch(1, "j", 0, 9, 2, b"nine"))
    runs = node.take(x.Run)
    assert [(run.run, run.payload, run.user, run.task) for run in runs] == [
        (1, b"seven", "anna", 7),
        (2, b"nine", "anna", 9),
    ]
    assert node.core.counters.started == 2
    assert {attempt.state for attempt in node.core.attempts.by_key.values()} == {RUNS}


def test_common_bytes_go_to_an_executor_once_and_each_run_names_them() -> None:
    node = OneJob(2, "many")
    node.receive(m.Common("j", 0, b"common"))
    node.reserve(1, 2)
    node.launch(1, 1)
    node.launch(2, 1)
    (common,) = node.take(x.Common)
    assert common.data == b"common" and {run.common for run in node.take(x.Run)} == {common.common}


def test_an_executor_is_let_in_to_large_common_bytes_for_each_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may have gone since the last one, and come back."""
    node, let_in = OneJob(), []

    def file_for(hash_: str, account: str) -> x.File | None:
        let_in.append(hash_)
        return node.blobs.file(hash_)

    monkeypatch.setattr(node.blobs, "file_for", file_for)
    node.blobs.add(far("c"))
    node.receive(m.Common("j", 0, far("c")))
    for number in (1, 2):
        (ask,) = node.reserve(number)
        node.launch(number, ask.ask)
        (run,) = node.take(x.Run)
        node.done("p0", run.run)
    assert let_in == ["c" * 64] * 2 and len(node.take(x.Common)) == 1


def test_a_stage_without_common_bytes_has_number_0() -> None:
    node = ready()
    node.launch(1, 1)
    assert not node.take(x.Common) and [run.common for run in node.take(x.Run)] == [0]


@pytest.mark.parametrize("arrive_first", ["payload", "common"])
def test_a_task_waits_for_all_its_large_data_and_holds_its_slot(arrive_first: str) -> None:
    node = OneJob()
    node.receive(m.Common("j", 0, far("c")))
    node.reserve(1)
    node.launch(1, 1, far("d"))
    (attempt,) = node.core.attempts.by_key.values()
    assert {fetch.hash[0] for fetch in node.outbox.fetches} == {"c", "d"} and attempt.state is WAITS
    first, second = ("d", "c") if arrive_first == "payload" else ("c", "d")
    node.fetched(first)
    assert not node.take(x.Run) and node.core.free_slots == 0
    node.fetched(second)
    assert len(node.take(x.Run)) == 1 and attempt.state is RUNS


def test_large_data_that_cannot_be_had_hands_the_task_back_with_the_hash() -> None:
    node = ready()
    node.launch(1, 1, far("f"))
    node.fetched("f", "far:1 is gone")
    (back,) = node.take(m.HandBack)
    assert (back.attempt, back.reason, back.missing) == (1, "far:1 is gone", ("f" * 64,))
    assert node.core.free_slots == 1 and node.core.idle and node.core.counters.started == 0


def test_large_data_that_is_here_is_not_fetched_and_the_executor_gets_its_file() -> None:
    node = ready()
    node.blobs.add(far("a"))
    node.launch(1, 1, far("a"))
    (run,) = node.take(x.Run)
    assert not node.outbox.fetches and not isinstance(run.payload, bytes | BlobRef)


def test_results_that_a_task_asks_for_come_in_order_and_several_times_if_it_asks_so() -> None:
    node = OneJob()
    node.receive(m.Input("j", 0, b"zero"), m.Input("j", 1, b"one"))
    node.reserve(1)
    node.launch(2, 1, inputs=((1, 1), (0, 2)))
    (run,) = node.take(x.Run)
    assert run.inputs == [b"one", b"zero", b"one"]


@pytest.mark.parametrize("inputs", [((0, 3),), ((5, 1),), ((0, 1 << 62),), ((0, 1),) * 100_001])
def test_a_task_whose_inputs_did_not_come_before_it_is_handed_back(inputs: tuple[tuple[int, int], ...]) -> None:
    """However many it names: they are counted before they are looked for."""
    node = OneJob()
    node.receive(m.Input("j", 0, b"zero"), m.Input("j", 1, b"one"))
    node.reserve(1)
    node.launch(2, 1, inputs=inputs)
    assert handed_back(node) == [(2, "its inputs were not sent before it")]
    assert node.core.free_slots == 1 and not node.take(x.Run)


def test_a_task_of_an_earlier_epoch_than_the_jobs_claim_is_handed_back_and_its_scheduler_fenced() -> None:
    node = ready()
    node.core.scheduler_up("new")
    node.receive(m.Claim("j", "anna", 3), scheduler="new")
    node.launch(1, 1)
    assert node.outbox.take(m.Fenced) == [("s", m.Fenced("j", 3, "anna"))]
    assert handed_back(node) == [(1, "another scheduler has the job")] and node.core.free_slots == 1


def test_a_task_that_runs_for_too_long_is_stopped_and_its_time_begins_when_it_starts() -> None:
    """It waited for 5 s for its data: that is not its own time."""
    node = OneJob()
    node.receive(m.Common("j", 0, b"", 2.0))
    node.reserve(1)
    node.launch(1, 1, far("f"))
    node.now_s = 0.9
    node.fetched("f")
    assert len(node.take(x.Run)) == 1
    node.tick(2.8)
    assert not node.take(x.Kill) and not node.outbox.killed
    node.tick(2.9)
    assert node.take(x.Kill) or node.outbox.killed == ["p0"]


def test_a_start_of_a_job_that_may_start_once_is_remembered() -> None:
    node = OneJob()
    node.receive(m.Common("j", 0, b"", None, 7, True))
    node.reserve(1)
    node.launch(4, 1)
    node.core.scheduler_up("new")
    node.receive(m.Claim("j", "anna", 1, 7, 0.0), scheduler="new")
    assert [started.tasks for started in node.take(m.StartedHere)] == [[4]]
