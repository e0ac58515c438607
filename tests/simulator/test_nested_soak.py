"""Nested tasks in the soak: their clients are relayed as on real nodes, and bugs in what they go through are found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from click.testing import CliRunner

from node_monitor.attempts import RESUMING
from node_monitor.frames_ahead import FramesAhead
from node_monitor.paused_tasks import PausedTasks
from node_monitor.task_relay import TaskRelay
from scheduler.book.client_loss import ClientLoss
from scheduler.task_clients import TaskClients
from simulator.soak import command, faults, scenarios
from simulator.soak.broken import Broken
from simulator.soak.nested_task import ChildLog
from simulator.soak.world import World
from sparrow_py.errors import InvariantViolated
from tests.support.suites import rest_after

SEEDS = range(7, 12)
PLANTED_SEEDS = 30
"""One of so many is to find a planted bug."""


def play(seed: int, *kinds: str) -> World:
    world = scenarios.draw(seed, kinds, nested=True).play()
    world.check_end()
    return world


def test_a_recursion_on_one_slot_ends_as_tasks_give_their_slot_back() -> None:
    world = World(3, nodes=[1], nested_share=1.0, receipts=True)
    parents = world.submit([0.01] * 3, app="pool")
    world.run()
    world.check_end()
    children = [log for log in world.logs.values() if isinstance(log, ChildLog)]
    assert {log.depth for log in children} == {1, 2, 3} and parents.ended_count == 1
    assert world.counts["tasks waited without a slot"] > 3
    told = [outcome for log in children for outcome in log.outcomes]
    assert Counter(outcome.status.value for outcome in told)["finished"] > 10


@pytest.mark.rest
@pytest.mark.parametrize("kinds", [(), tuple(faults.KINDS)])
def test_some_seeds_pass(kinds: tuple[str, ...]) -> None:
    counts, failures = command.soak(SEEDS, kinds, processes=1, nested=True)
    assert not failures, failures
    assert counts.nested["nested jobs"] > 4 * len(SEEDS) and counts.nested["waits refused"]
    assert {"finished", "failed", "cancelled"} <= set(counts.outcomes)
    assert "duplication" not in counts.faults and bool(counts.faults) == bool(kinds)


@pytest.mark.rest
@pytest.mark.parametrize("kinds", [("scheduler-crash", "scheduler-stop"), ("cut", "partition", "stall")])
def test_clients_within_tasks_connect_again(kinds: tuple[str, ...]) -> None:
    again: Counter[str] = Counter()
    for seed in range(4):
        again += play(seed, *kinds).counts
    assert again["nested: moved"] or again["nested: told to come again"]


def test_old_seeds_mean_what_they_meant() -> None:
    plain, nested = scenarios.draw(5), scenarios.draw(5, nested=True)
    assert plain.actions == nested.actions and "nested_share" not in plain.setup and nested.setup["nested_share"]


def test_where_tasks_have_no_clients_they_fail_and_nothing_is_left() -> None:
    world = scenarios.draw(0, (), nested=True).play(scheduler={"placement": "central"})
    world.check_end()
    assert world.counts["nested: denied"]


def test_a_seed_that_fails_is_replayed_with_its_nested_tasks() -> None:
    arguments = ["--seeds", "1", "--nested", "--events", "5", "--processes", "1"]
    result = CliRunner().invoke(command.soak_command, arguments)
    assert result.exit_code == 1
    assert "python -m simulator soak --seed 0 --events 5 --nested" in result.output


# ---- planted bugs ----------------------------------------------------------------------------


def nothing(*_: Any) -> None:
    """What should be done is not."""


def keeps_quiet(relay: Any, client: Any) -> None:
    """A client is gone, and its scheduler is not told."""
    if client.open:
        relay._forget(client)


def lets_run(loss: Any, client: str, now_s: float) -> None:
    """The jobs of a task that has ended are cancelled but for what runs."""
    for job in list(loss._register.by_client.pop(client, {}).values()):
        job.client = ""
        if loss._ledger.is_here(job):
            loss._cancel(job, now_s, reason="its parent has ended", running=False)


def goes_on_at_once(paused: Any, executor_id: str, message: Any, now_s: float) -> None:
    """A task that wants a slot again is told that it has one."""
    attempt = paused._executors[executor_id].running[message.run]
    attempt.becomes(RESUMING)
    paused._resuming.append(attempt)
    paused._slots.awaited += 1
    paused._go_on(attempt, now_s)


def found(first: int, *kinds: str) -> str:
    """What the soak finds from this seed on."""
    for seed in range(first, first + PLANTED_SEEDS):
        try:
            play(seed, *kinds)
        except (Broken, InvariantViolated) as error:
            return str(error)
    return ""


@pytest.mark.parametrize(
    "bug",
    rest_after(
        2,
        (PausedTasks, "wants_slot", goes_on_at_once, "two tasks that do not wait"),
        (TaskClients, "node_gone", nothing, "left at"),
        (ClientLoss, "_parent_ended", lets_run, "went on long after"),
        (TaskRelay, "closed", keeps_quiet, "went on long after"),
        (TaskRelay, "scheduler_down", nothing, "it ended 0 times"),
        (FramesAhead, "heard", nothing, "on_their_way"),
    ),
)
def test_a_planted_bug_is_found(bug: tuple[type, str, Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    of, name, planted, told = bug
    monkeypatch.setattr(of, name, planted)
    first = 7 if name == "scheduler_down" else 0
    kinds = ["cut"] if planted is nothing and of is not FramesAhead else []
    assert told in found(first, *kinds)
