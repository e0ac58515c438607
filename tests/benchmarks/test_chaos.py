"""The chaos rounds' plans, oracle and journal: every check can fail, and a seed is a plan."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.chaos import plan, shares
from benchmarks.chaos.journal import Journal, key
from benchmarks.chaos.plan import Plan, Scene, zone_of
from benchmarks.chaos.player import Played
from benchmarks.laboratory import evidence, jobs, kinds, oracle, told, work
from benchmarks.laboratory.evidence import Evidence, Program, Run
from benchmarks.laboratory.faults import Happened, Kind
from benchmarks.laboratory.jobs import Job, Stage, Task, Way
from benchmarks.laboratory.told import Event, Told
from tests.support.daemons import clean_environment

S = 1_000_000_000
ROOT = Path(__file__).parents[2]


def job(name: str = "j", tasks: int = 2, **how: Any) -> Job:
    given = how.pop("stages", (Stage(tasks=tuple([Task(duration_s=0.1)] * tasks)),))
    return Job(**{"name": name, "user": "ada", "way": Way.CALLS, "at_s": 0.0, "stages": given} | how)


def planned(*jobs: Job, **how: Any) -> Plan:
    return Plan(**{"seed": 1, "number": 0, "scene": Scene.FAULTS, "placement": "sparrow", "queue": "fair",
                   "schedulers": 1, "slots": (2, 1), "users": {"ada": 1.0, "grace": 1.0}, "jobs": jobs,
                   "faults": ()} | how)  # fmt: skip


def run(task: int = 0, name: str = "j", *, pid: int = 0, at_s: float = 1.0, end_s: float | None = None,
        lasts_s: float | None = 0.1, host: str = "node-0+0") -> Run:  # fmt: skip
    start_ns = int(at_s * S)
    end_ns = None if lasts_s is None else start_ns + int(lasts_s * S)
    return Run(name, task, pid or 100 + task, start_ns, int(end_s * S) if end_s else end_ns, host)


def line(event: Event = Event.OUTCOME, task: int = 0, name: str = "j", at_s: float = 5.0, **more: Any) -> Told:
    if event is Event.OUTCOME:
        mark = work.mark(work.value(name, task, [], 0)) if more.get("status", "finished") == "finished" else None
        more = {"task": task, "status": "finished", "attempts": 1, "mark": mark, "service_s": 0.1} | more
    return Told(**{"event": event, "at_ns": int(at_s * S), "job": name} | more)


def good(*jobs: Job, **how: Any) -> Evidence:
    """A round in which all went well: each task ran once, from second 1 on, one after the other."""
    jobs = jobs or (job(),)
    lines = [line(Event.LIFE, name="", at_s=0.0)]
    runs = []
    for one in jobs:
        lines.append(line(Event.SUBMITTED, name=one.name, at_s=0.5))
        for number, mark in enumerate(oracle.expected_marks(one.name, one)):
            lines.append(line(task=number, name=one.name, mark=mark))
            runs.append(
                run(
                    number, one.name, pid=1000 * jobs.index(one) + number + 1, at_s=1.0 + number + 0.2 * jobs.index(one)
                )
            )
    lines.append(line(Event.OVER, name="", at_s=30.0))
    return evidence_of(planned(*jobs, **how), [Program("ada", 0, tuple(lines))], runs)


def evidence_of(planned: Plan, programs: list[Program], runs: list[Run]) -> Evidence:
    """Of a round in which nobody was disturbed."""
    slots = {f"node-{number}": slots for number, slots in enumerate(planned.slots)}
    zones = {name: zone_of(name) for name in slots}
    return Evidence(slots, {one.name: one for one in planned.jobs}, programs, runs, [], zones=zones)


def with_lines(found: Evidence, change: Callable[[Told], Told | None], *more: Told) -> Evidence:
    """Lines changed, left out, or added before the last."""
    (program,) = found.programs
    changed = [new for old in program.lines if (new := change(old)) is not None]
    return replace(found, programs=[replace(program, lines=(*changed[:-1], *more, changed[-1]))])


def outcome(found: Evidence, task: int, **how: Any) -> Evidence:
    """That task's outcome is another."""

    def change(old: Told) -> Told:
        return msgspec.structs.replace(old, **how) if (old.event, old.task) == (Event.OUTCOME, task) else old

    return with_lines(found, change)


def fault(kind: Kind, at_s: float = 0.7, target: str = "node-0") -> Happened:
    return Happened(int(at_s * S), kind, target)


def stages() -> Job:
    first = Stage(name="a", tasks=(Task(duration_s=0.1), Task(duration_s=0.1)))
    second = Stage(name="b", after=("a",), tasks=(Task(duration_s=0.1, inputs=(("a", -1), ("a", 1))),))
    return job(stages=(first, second), way=Way.STAGES)


def ended_by_death(found: Evidence) -> Evidence:
    """The program was killed instead of coming to its end, after its job was accepted."""
    (program,) = found.programs
    kept = [one for one in program.lines if one.event not in (Event.OVER, Event.OUTCOME)]
    return replace(found, programs=[replace(program, lines=(*kept, line(Event.ACCEPTED, at_s=0.6)))])


def late(found: Evidence) -> Evidence:
    """A task is started when it has been told of."""
    return replace(found, runs=[*found.runs, run(0, at_s=6, pid=7)])


def no(kind: Event, task: int) -> Callable[[Told], Told | None]:
    return lambda old: None if (old.event, old.task) == (kind, task) else old


def same(old: Told) -> Told:
    return old


LOST = {"status": "lost", "error": "gone", "mark": None}
FAILED = {"status": "failed", "error": "PlannedFailure: so", "mark": None}
CANCELLED = {"status": "cancelled", "error": "why", "mark": None}
FAILS = (Stage(tasks=(Task(duration_s=0.1, fails=1), Task(duration_s=0.1))),)

PLANTED: dict[str, list[Callable[[], Evidence]]] = {
    "every job ends": [lambda: with_lines(good(), no(Event.OUTCOME, 1))],
    "every end has a reason": [
        lambda: outcome(replace(good(), happened=[fault(Kind.KILL_NODE)]), 0, **LOST | {"error": "", "attempts": 3}),
        lambda: outcome(good(), 0, status="vanished", mark=None),
    ],
    "no job is refused": [
        lambda: with_lines(good(), lambda old: None if old.event is Event.OUTCOME else old,
                           line(Event.REFUSED, error="full")),
        lambda: replace(
            with_lines(good(job(input_bytes=kinds.INPUT_BYTES)),
                       lambda old: None if old.event is Event.OUTCOME else old, line(Event.REFUSED, error="no node")),
            happened=[fault(Kind.KILL_NODE)],
        ),
    ],
    "http jobs end with their scheduler only": [
        lambda: with_lines(good(job(way=Way.HTTP)), no(Event.OUTCOME, 1), line(Event.GONE, error="broke off"))
    ],
    "outcomes are told once": [
        lambda: with_lines(good(), same, line(task=1)),
        lambda: with_lines(good(), same, line(Event.TWICE, error="accepted, twice")),
    ],
    "values are right": [
        lambda: outcome(good(), 1, mark="other"),
        lambda: outcome(good(stages()), 2, mark=work.value("j", 2, [], 0)),
        lambda: outcome(good(job(capture_output=True, tasks=1)), 0, stdout="j 1\n"),
    ],
    "what finished has ended": [
        lambda: replace(good(), runs=[run(0)]),
        lambda: replace(good(), runs=[run(0), run(1, lasts_s=None)]),
    ],
    "times are of a monotonic clock": [
        lambda: outcome(good(), 0, service_s=3600.0), lambda: outcome(good(), 0, service_s=-1.0),
    ],
    "starts are limited": [
        lambda: outcome(
            replace(good(job(max_attempts=2)), happened=[fault(Kind.KILL_NODE)],
                    runs=[run(0), run(1), run(0, at_s=2, pid=7), run(0, at_s=6, pid=8)]), 0, attempts=2
        ),
        lambda: replace(good(job(max_attempts=1)), happened=[fault(Kind.KILL_PAIR)],
                        runs=[run(0), run(1), run(0, at_s=6, pid=7)]),
    ],
    "attempts say the truth": [
        lambda: replace(good(), happened=[fault(Kind.KILL_NODE)], runs=[run(0), run(1), run(0, at_s=2, pid=7)]),
        lambda: outcome(good(), 0, attempts=4),
    ],
    "restarts are explained": [
        lambda: outcome(replace(good(), runs=[run(0), run(1), run(0, at_s=2, pid=7)]), 0, attempts=2),
        lambda: outcome(
            replace(
                good(), happened=[fault(Kind.KILL_PAIR, target="node-1")],
                runs=[run(0), run(1), run(0, at_s=2, pid=7)]
            ), 0, attempts=2,
        ),
        lambda: outcome(replace(good(job(stages=FAILS)), runs=[run(0), run(1), run(0, at_s=2, pid=7)]), 0, attempts=2),
    ],
    "nothing starts after its outcome": [
        lambda: late(good(job("j", prefetch=8), job("k", speculate=True))),
    ],
    "losses are explained": [
        lambda: outcome(good(), 0, **LOST | {"attempts": 3}),
        lambda: outcome(replace(good(), happened=[fault(Kind.KILL_NODE)]), 0, **LOST | {"attempts": 2}),
        lambda: outcome(replace(good(job(max_attempts=1)), happened=[fault(Kind.KILL_NODE, 5.5)]), 0, **LOST),
        lambda: outcome(replace(good(), happened=[fault(Kind.CLOCK)]), 0, **LOST | {"attempts": 3}),
        lambda: outcome(
            replace(good(), happened=[fault(Kind.KILL_NODE, target="node-1")]), 0, **LOST | {"attempts": 3}
        ),
    ],
    "failures are explained": [
        lambda: outcome(good(), 0, **FAILED),
        lambda: outcome(good(job(stages=FAILS, retry_failed=True)), 0, **FAILED),
        lambda: good(job(stages=FAILS)),
        lambda: outcome(good(job(task_timeout_s=0.4)), 0, status="failed", error="timed out", mark=None),
    ],
    "cancellations are explained": [
        lambda: outcome(good(), 0, **CANCELLED),
        lambda: outcome(good(stages()), 2, **CANCELLED),
        lambda: with_lines(outcome(good(job(cancel=jobs.Cancel(after_s=1.0, running=False))), 0, **CANCELLED), same,
                           line(Event.CANCELLED, at_s=0.6)),
    ],
    "results are lost with nodes only": [
        lambda: outcome(replace(good(), happened=[fault(Kind.KILL_SCHEDULER)]), 0, result_lost=True, error="404"),
    ],
    "jobs finish without their client": [
        lambda: replace(ended_by_death(good(job(on_client_lost="finish"))), runs=[run(0)]),
        lambda: replace(ended_by_death(good(job(on_client_lost="finish"))), runs=[run(0), run(1, lasts_s=None)]),
    ],
    "no node runs more than its slots": [
        lambda: replace(good(job(tasks=3)), runs=[run(0), run(1), run(2)]),
        lambda: replace(good(job(gpu=True)), runs=[run(0), run(1)]),
    ],
    "workers run one task at a time": [
        lambda: replace(good(), runs=[run(0, pid=7), run(1, pid=7, at_s=1.05)]),
        lambda: outcome(
            replace(good(), happened=[fault(Kind.KILL_WORKER)],
                    runs=[run(0, pid=7, lasts_s=None), run(1, pid=7, at_s=3), run(0, at_s=4)]), 0, attempts=2
        ),
    ],
    "workers belong to one user": [
        lambda: replace(good(job("j", 1), job("k", 1, user="grace")),
                        runs=[run(0, "j", pid=7), run(0, "k", pid=7, at_s=2)]),
    ],
    "tasks run where they may": [
        lambda: good(job(zone="b")),
        lambda: good(job(stages=(Stage(tasks=(Task(duration_s=0.1, preferred=("node-1",)),)),))),
    ],
    "stages come in order": [
        lambda: replace(good(stages()), runs=[run(0), run(1, at_s=2), run(2, at_s=2.05)]),
        lambda: outcome(
            replace(good(stages()), happened=[fault(Kind.KILL_NODE)],
                    runs=[run(0), run(1, at_s=2, lasts_s=None), run(2, at_s=4), run(1, at_s=4.5, pid=9)]), 1, attempts=2
        ),
    ],
    "nothing is left": [lambda: replace(good(), troubles=["node-0: 3 reservations"])],
}  # fmt: skip
"""By the name of the check that is to find it, and no other."""


@pytest.mark.parametrize(
    ("name", "planted"), [(name, planted) for name, all_planted in PLANTED.items() for planted in all_planted]
)
def test_a_planted_violation_is_found(name: str, planted: Callable[[], Evidence]) -> None:
    violations = list(oracle.judge(planted()))
    assert {violation.partition(":")[0] for violation in violations} == {name}, violations


def test_every_check_has_a_violation_planted() -> None:
    assert {check.__name__.replace("_", " ") for check in oracle.CHECKS} == set(PLANTED)


@pytest.mark.parametrize(
    "found",
    [
        good(),
        good(stages()),
        good(job("j"), job("k", user="grace"), job("l", zone="a")),
        # Lost with all attempts used up, after a death.
        outcome(replace(good(), happened=[fault(Kind.KILL_NODE)]), 0, **LOST | {"attempts": 3}),
        # Its scheduler died, or a node that it was sent to, and never started at.
        outcome(replace(good(), happened=[fault(Kind.KILL_PAIR, target="scheduler-0")]), 0, **LOST | {"attempts": 3}),
        outcome(replace(good(), happened=[fault(Kind.KILL_NODE, target="node-1")], runs=[run(1)]), 0,
                **LOST | {"attempts": 3}),
        # The node that had it first stood still and was given up; it went on with it later.
        outcome(replace(good(), happened=[fault(Kind.STOP_MACHINE, target="node-1")],
                        runs=[run(0), run(1), run(0, at_s=2, pid=7, host="node-1+0")]), 0, attempts=2),
        # Failed as it was to; again, and then finished.
        outcome(good(job(stages=FAILS)), 0, **FAILED),
        outcome(replace(good(job(stages=FAILS, retry_failed=True)), runs=[run(0), run(1), run(0, at_s=2, pid=7)]), 0,
                attempts=2),
        # Stopped when its time was over.
        outcome(replace(good(job(task_timeout_s=0.4)), runs=[run(0, lasts_s=None), run(1)]), 0, **FAILED),
        # Cancelled before it started, and what comes after what failed.
        with_lines(outcome(replace(good(job(cancel=jobs.Cancel(after_s=1.0, running=False))), runs=[run(1)]), 0,
                           **CANCELLED), same, line(Event.CANCELLED, at_s=0.6)),
        # A copy of a slow task.
        replace(good(job(speculate=True, max_attempts=2)), runs=[run(0), run(1, at_s=2), run(0, at_s=1.05, pid=7)]),
        # It went on without its client, which was only cut off.
        outcome(replace(good(job(max_attempts=2, on_client_lost="finish")),
                        happened=[fault(Kind.ISOLATE_CLIENT, target="ada"), fault(Kind.KILL_NODE)],
                        runs=[run(0), run(1), run(0, at_s=2, pid=7), run(0, at_s=3, pid=8)]), 0, attempts=2),
        # Its scheduler died, and its program.
        with_lines(replace(good(job(way=Way.HTTP)), happened=[fault(Kind.KILL_SCHEDULER)]), no(Event.OUTCOME, 1),
                   line(Event.GONE)),
        replace(ended_by_death(good(job(on_client_lost="cancel"))), runs=[run(0)]),
    ],
)  # fmt: skip
def test_what_is_allowed_is_no_violation(found: Evidence) -> None:
    assert list(oracle.judge(found)) == []


def test_the_clock_of_commands_has_steps() -> None:
    found = replace(good(job(tasks=3, way=Way.COMMAND)), runs=[run(0), run(1), run(2, at_s=1.1)])
    assert list(oracle.judge(found)) == [], "one may have ended 10 ms later than it wrote, another begun so"


# ---- shares ----------------------------------------------------------------------------------


def streams(starts: dict[str, int], seconds: int = 10, **how: Any) -> tuple[Plan, Evidence]:
    """Users that start so many tasks a second, as equals."""
    runs = [
        run(second * count + number, user, pid=number + 1, at_s=second + number / count)
        for user, count in starts.items()
        for second in range(seconds)
        for number in range(count)
    ]
    users = dict.fromkeys(starts, 1.0)
    counts = {user: count * seconds for user, count in starts.items()}
    jobs = [job(user, counts[user], user=user) for user in starts]
    round_ = planned(*jobs, **{"scene": Scene.SHARES, "users": users} | how)
    return round_, evidence_of(round_, [], runs)


@pytest.mark.parametrize(
    ("starts", "weights", "wrong"),
    [
        ({"ada": 50, "grace": 50}, (1.0, 1.0), 0),
        ({"ada": 66, "grace": 33}, (2.0, 1.0), 0),
        ({"ada": 50, "grace": 50}, (2.0, 1.0), 2),
        ({"ada": 70, "grace": 30}, (1.0, 1.0), 2),
    ],
)
def test_shares_that_are_not_as_weights_say(starts: dict[str, int], weights: tuple[float, float], wrong: int) -> None:
    assert len(list(shares.judge(*streams(starts, users=dict(zip(starts, weights, strict=True)))))) == wrong


def test_shares_do_not_count_while_a_user_has_yet_to_submit() -> None:
    """As on a machine that is busy with other things."""
    round_, found = streams({"ada": 50, "grace": 50})
    found.runs = [one for one in found.runs if one.job == "ada"]
    found.runs += [
        run(number, "grace", pid=1, at_s=number / 20 if number < 100 else 3 + number / 50) for number in range(500)
    ]
    assert len(list(shares.judge(round_, found))) == 2
    found.programs = [Program("grace", 0, (line(Event.SUBMITTED, name="grace", at_s=5.0),))]
    assert not list(shares.judge(round_, found))


def test_shares_of_tasks_that_were_not_started() -> None:
    round_, found = streams({"ada": 50, "grace": 50})
    found.runs = [one for one in found.runs if one.job == "ada"]
    (violation,) = shares.judge(round_, found)
    assert "did not start" in violation


@pytest.mark.parametrize(("at_s", "wrong"), [(1.2, 0), (9.0, 1), (None, 1)])
def test_a_newcomer_that_waits(at_s: float | None, wrong: int) -> None:
    round_, found = streams({"hog": 50}, scene=Scene.NEWCOMER, slots=(2,))
    found.programs = [Program("grace", 0, (line(Event.SUBMITTED, name="newcomer", at_s=1.0),))]
    if at_s is not None:
        found.runs.append(run(0, "newcomer", at_s=at_s))
    assert len(list(shares.judge(round_, found))) == wrong


# ---- plans -----------------------------------------------------------------------------------


def test_a_seed_and_a_number_are_a_plan() -> None:
    assert plan.draw(7, 12) == plan.draw(7, 12)
    assert plan.draw(7, 12) != plan.draw(7, 22) != plan.draw(8, 22)
    other = plan.draw(7, 12, "random")
    assert msgspec.structs.replace(other, placement=plan.draw(7, 12).placement) == plan.draw(7, 12)
    again = msgspec.json.decode(msgspec.json.encode(plan.draw(7, 12)), type=Plan)
    assert again == plan.draw(7, 12), "a journal says all of it"


def test_plans_have_everything_in_them() -> None:
    plans = [plan.draw(1, number) for number in range(200)]
    jobs = [one for each in plans for one in each.jobs]
    assert {one.name.rpartition("-")[0] for one in jobs} >= set(kinds.KINDS)
    assert {one.kind for each in plans for one in each.faults} == {*plan.DECK, *plan.STORM}
    assert {one.way for one in jobs} == set(Way)
    assert Counter((each.scene, each.placement) for each in plans).keys() >= {
        (scene, placement) for scene in Scene for placement in plan.PLACEMENTS
    }
    assert {one.max_attempts for one in jobs} == {1, 2, 3} and {one.prefetch for one in jobs} >= {0, 8, 64}
    assert {each.queue for each in plans} == set(plan.QUEUES)
    assert all(1 <= each.schedulers <= 3 and 1 <= len(each.slots) <= 5 and max(each.slots) <= 4 for each in plans)


def test_what_a_plan_breaks_comes_back_where_it_is_needed() -> None:
    for number in range(200):
        for one in plan.draw(3, number).faults:
            needed = {"scheduler-0", "node-0", "node-1"} & set(one.targets)
            assert one.back or not needed, one


# ---- what tasks and programs write down ------------------------------------------------------


def test_what_a_task_writes_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, host = tmp_path / "runs" / "j", tmp_path / "node-1+0"
    directory.mkdir(parents=True)
    host.mkdir()
    monkeypatch.chdir(host)
    order = (str(directory), 4, 0.0, 1, 0, "")
    with pytest.raises(work.PlannedFailure):
        work.task(order, b"", ())
    assert work.task(order, b"", (["x"],)) == work.value("j", 4, [["x"]], 0)
    work.begin(str(directory), 4)  # And is killed.
    first, second, third = sorted(evidence.read_runs(tmp_path / "runs"), key=lambda one: one.start_ns)
    assert (first.task, first.pid, first.host, first.node) == (4, os.getpid(), "node-1+0", "node-1")
    assert first.end_ns is not None and second.end_ns is not None and third.end_ns is None
    assert first.start_ns < first.end_ns < second.start_ns < second.end_ns < third.start_ns
    name = next(path.name for path in directory.iterdir())
    with pytest.raises(FileExistsError):
        work.create(str(directory), name)


def test_what_a_program_that_is_killed_leaves(tmp_path: Path) -> None:
    path = tmp_path / "ada.1"
    told.Writer(path).write(Event.OUTCOME, "j", task=3, status="finished", mark=["x"])
    with path.open("ab") as file:
        file.write(b'{"event":"outc')
    (program,) = evidence.read_programs(tmp_path)
    assert (program.name, program.life, program.over) == ("ada", 1, False)
    assert [(one.event, one.job, one.task, one.mark) for one in program.lines] == [(Event.OUTCOME, "j", 3, ["x"])]


# ---- the journal -----------------------------------------------------------------------------


def played(number: int, violations: list[str], generator: int = plan.GENERATOR) -> Played:
    said = plan.summary(plan.draw(1, number))
    return Played(generator=generator, seed=1, number=number, placement="sparrow", scene="calm", lasted_s=1.0,
                  violations=violations, counts={"tasks": 3}, faults={}, plan=said)  # fmt: skip


def test_a_journal_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = Journal(path)
    first.add(played(0, []))
    first.add(played(1, ["starts are limited: j"]))
    with path.open("ab") as file:
        file.write(b'{"seed": 1, "numb')
    second = Journal(path)
    assert second.played == {key(one): one for one in (played(0, []), played(1, ["starts are limited: j"]))}
    second.add(played(2, []))
    second.add(played(3, [], generator=0))
    assert len(Journal(path).played) == 3, "without the line that was not finished, and the one of another generator"
    assert not Journal(None).played


# ---- processes and clocks --------------------------------------------------------------------


FORKS = """
import os, signal, sys, time
from pathlib import Path
from benchmarks.laboratory import clocks
from benchmarks.laboratory.processes import Process

def announce():
    print(f'{{"now_s": {time.time()}, "cwd": "{Path.cwd()}", "variables": {len(os.environ)}}}', flush=True)
    signal.pause()

directory = Path(sys.argv[1])
clock = directory / "clock"
clocks.new(clock)
clocks.jump(clock, 3600.0)
clocks.jump(clock, 60.0)
process = Process(announce, log=directory / "log", cwd=directory, environment={clocks.VARIABLE: str(clock)})
said = process.announcement()
assert 3600 < said["now_s"] - time.time() < 3720, said
assert said["cwd"] == str(directory) and said["variables"] == 1, said
assert process.runs
process.kill()
assert not process.runs and process.code == -signal.SIGKILL
failing = Process(lambda: 1 / 0, log=directory / "log", cwd=directory, environment={})
try:
    failing.announcement()
except RuntimeError as error:
    assert "ZeroDivisionError" in str(error)
    while failing.runs:
        time.sleep(0.001)
    print(failing.code)
"""
"""Who forks has one thread, as this process may not."""


def test_processes_that_are_forked(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "1\n"


def test_there_is_one_wall_clock() -> None:
    """`clocks.py` moves `time.time`: whatever else the product read would not move with it."""
    other = re.compile(r"datetime|time_ns|CLOCK_REALTIME|from time import|localtime|gmtime|perf_counter_ns")
    rooms = ("sparrow_py", "scheduler", "node_monitor", "frontends/python", "frontends/command", "frontends/synthetic")
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for room in rooms
        for path in sorted((ROOT / room).rglob("*.py"))
        for text in path.read_text().splitlines()
        if other.search(text)
    ]
    assert found == []
