"""`benchmarks.hops`: paths are traced back from the result, and processes note what they say and hear."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.hops import recorder
from benchmarks.hops.__main__ import HOOK, noted_events
from benchmarks.hops.path import BEGINS, ENDS, Event, calls, critical_path, hops
from benchmarks.report import ROOT, median_rows

CLIENT, SCHEDULER, NODE = 1, 2, 3
ROLES = {CLIENT: "client", SCHEDULER: "scheduler", NODE: "node monitor"}


def events(*steps: tuple[int, int, str], start_us: int = 0) -> list[Event]:
    """Steps of (µs since the start, process, label); each thread's CPU time is half the time."""
    return [
        Event((start_us + at_us) * 1000, (start_us + at_us) * 500, ROLES[process], process, label)
        for at_us, process, label in steps
    ]


CALL = (
    (0, CLIENT, BEGINS),
    (10, CLIENT, "says SubmitJob"),
    (12, CLIENT, "says AddTasks"),
    (50, SCHEDULER, "hears AddTasks,SubmitJob"),
    (60, SCHEDULER, "says ForgetJob"),
    (70, SCHEDULER, "says Reserve"),
    (75, NODE, "hears ForgetJob"),
    (100, NODE, "hears Reserve"),
    (130, NODE, "says Report"),
    (135, SCHEDULER, "hears Idle"),
    (160, SCHEDULER, "hears Report"),
    (170, SCHEDULER, "says Outcome"),
    (200, CLIENT, "hears Outcome"),
    (230, CLIENT, ENDS),
)


def test_a_path_is_what_the_result_waited_for() -> None:
    path = critical_path(events(*CALL))
    assert [event.label for event in path] == [
        BEGINS, "says AddTasks", "hears AddTasks,SubmitJob", "says Reserve", "hears Reserve", "says Report",
        "hears Report", "says Outcome", "hears Outcome", ENDS,
    ]  # fmt: skip


def test_hops_between_processes_and_within_them_add_up_to_the_call() -> None:
    found, share = hops([critical_path(events(*CALL))])
    assert [(hop.name, hop.wall_us, hop.cpu_us) for hop in found] == [
        ("client: submits → AddTasks,SubmitJob", 12, 6),
        ("client → scheduler", 38, None),
        ("scheduler: AddTasks,SubmitJob → Reserve", 20, 10),
        ("scheduler → node monitor", 30, None),
        ("node monitor: Reserve → Report", 30, 15),
        ("node monitor → scheduler", 30, None),
        ("scheduler: Report → Outcome", 10, 5),
        ("scheduler → client", 30, None),
        ("client: Outcome → has the result", 30, 15),
    ]
    assert sum(hop.wall_us for hop in found) == 230
    assert share == 1


def test_the_usual_path_is_shown_with_its_share() -> None:
    other = events((0, CLIENT, BEGINS), (40, CLIENT, ENDS))
    found, share = hops([critical_path(events(*CALL)), critical_path(other), critical_path(events(*CALL)), []])
    assert len(found) == 9
    assert share == 0.5


def test_a_result_whose_way_is_not_known_has_no_path() -> None:
    assert critical_path(events((0, CLIENT, BEGINS), (5, CLIENT, "hears Outcome"), (9, CLIENT, ENDS))) == []
    assert hops([[]]) == ([], 0.0)


def test_calls_are_told_apart_by_their_submissions_and_results() -> None:
    noted = [*events(*CALL), *events((5, NODE, "says Idle"), start_us=300), *events(*CALL, start_us=1000)]
    assert [len(call) for call in calls(noted)] == [len(CALL), len(CALL)]


PROGRAM = """
import os
from sparrow_py.wire import messages as m
frame = bytearray(b"\\xdc\\x00\\x01")
m.encode_into(m.Goodbye("over"), frame, -1)
if os.fork() == 0:
    m.FrameDecoder(m.ToClient)(frame)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("module", ["scheduler", "frontends.python.executor"])
def test_a_process_and_its_forks_note_what_they_say_and_hear(tmp_path: Path, module: str) -> None:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HOOK), str(ROOT)]),
        recorder.DIRECTORY_VARIABLE: str(tmp_path),
    }
    subprocess.run([sys.executable, "-c", PROGRAM, module], env=environment, check=True, timeout=30)
    noted = sorted(noted_events(tmp_path), key=lambda event: event.when_ns)
    assert [event.step for event in noted] == [
        f"{recorder.ROLES[module]} says Goodbye",
        f"{recorder.ROLES[module]} hears Goodbye",
    ]
    assert noted[0].process != noted[1].process


def test_a_process_that_nobody_asks_notes_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HOOK), str(ROOT)])}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=30)
    assert list(tmp_path.iterdir()) == []


def test_medians_are_of_the_repetitions_that_have_a_number() -> None:
    """CPU time of a hop is not known where threads took turns."""
    repetitions = [[{"hop": "a", "CPU µs": first}] for first in ("", 3.0, 5.0)]
    assert median_rows(repetitions) == [{"hop": "a", "CPU µs": 4.0}]
    assert median_rows(repetitions[:1]) == [{"hop": "a", "CPU µs": ""}]
    assert median_rows(repetitions[::-1]) == [{"hop": "a", "CPU µs": 4.0}]
