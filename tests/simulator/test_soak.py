"""The soak: a few seeds pass, the same seed is the same run, and a bug is told so that it can be played again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Hashable, Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from node_monitor.blobs.lack_of_room import LackOfRoom
from scheduler.book import deliveries
from scheduler.book.endings import Endings
from scheduler.sampling.probing import Probing
from simulator.soak import command, fallible_hosts, faults, scenarios
from simulator.soak.blobs import FakeBlobs
from simulator.soak.command import run_seed, soak_command
from sparrow_py.errors import InvalidOption
from tests.support.suites import rest_after

ALL = tuple(faults.KINDS)
SEEDS = range(15)
NEEDING_SEEDS = (16, 32, 35, 64, 106, 138)
"""Many tasks of these scenarios need large results of others."""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(soak_command, list(arguments))


@pytest.mark.parametrize(
    "kinds", rest_after(1, (), ALL, ("duplication",), ("partition", "scheduler-crash", "loss", "stall"))
)
def test_some_seeds_pass(kinds: tuple[str, ...]) -> None:
    counts, failures = command.soak(SEEDS, kinds, processes=1)
    assert not failures, failures
    assert counts.seeds == len(SEEDS) and set(counts.faults) == set(kinds)
    assert min(counts.jobs, counts.tasks, counts.retries, counts.outcomes["finished"]) > len(SEEDS)
    assert set(counts.outcomes) == {"finished", "failed", "cancelled", "lost"}


@pytest.mark.parametrize("kinds", [ALL, ("loss", "partition", "stall")])
def test_some_seeds_pass_with_clients_that_say_what_they_have_received(
    kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are sent a few outcomes ahead, not more."""
    monkeypatch.setattr(deliveries, "WINDOW_BYTES_MAX", 2500)
    for seed in range(8):
        world = scenarios.draw(seed, kinds).play(receipts=True)
        world.check_end()
        assert all(scheduler.core.is_done for scheduler in world.schedulers)
        assert not any(scheduler.core.book.deliveries.counted_bytes() for scheduler in world.schedulers)


class OftenFull(FakeBlobs):
    """Large data of a node that has often no room for what tasks need."""

    refused = 0
    """By all of them."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._rng = random.Random(address)

    def _refuses(self) -> LackOfRoom | None:
        if self._rng.random() < 0.6:
            return None
        OftenFull.refused += 1
        return LackOfRoom("it is full", is_lasting=self._rng.random() < 0.1)

    def lack_of_room(self, size: int, in_all: int, user: str) -> LackOfRoom | None:
        return self._refuses()

    def pin(self, hash_: str, owner: Hashable, user: str) -> LackOfRoom | None:
        return (self._refuses() if user else None) or super().pin(hash_, owner, user)


@pytest.mark.rest
@pytest.mark.parametrize("kinds", [(), ALL])
def test_some_seeds_pass_with_nodes_that_often_have_no_room_for_inputs(
    kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallible_hosts, "FakeBlobs", OftenFull)
    monkeypatch.setattr(OftenFull, "refused", 0)
    _, failures = command.soak(NEEDING_SEEDS, kinds, processes=1)
    assert not failures, failures
    assert OftenFull.refused > 10 * len(NEEDING_SEEDS)


@pytest.mark.rest
@pytest.mark.parametrize("kinds", [(), ALL])
def test_some_seeds_pass_with_central_schedulers(kinds: tuple[str, ...]) -> None:
    """Some of them have two or three, which know nothing of each other: that costs time, and nothing else."""
    counts, failures = command.soak(SEEDS, kinds, processes=1, placement="central")
    assert not failures, failures
    assert min(counts.jobs, counts.tasks, counts.outcomes["finished"]) > len(SEEDS)


def test_the_placement_of_a_seed_may_be_chosen_and_stands_in_the_command_that_replays_it() -> None:
    result = run("--seeds", "1", "--placement", "central", "--events", "5", "--processes", "1")
    assert result.exit_code == 1
    assert "python -m simulator soak --seed 0 --events 5 --placement central" in result.output


def test_every_kind_of_fault_is_among_those_that_are_drawn() -> None:
    drawn = {fault.kind for seed in range(60) for fault in scenarios.draw(seed).faults}
    assert drawn == set(ALL)


def test_faults_do_not_change_what_users_do() -> None:
    one, other = scenarios.draw(5), scenarios.draw(5, ("cut",))
    assert (one.setup, one.actions) == (other.setup, other.actions) and one.faults != other.faults


@pytest.mark.rest
def test_the_same_seed_is_the_same_run_whatever_the_hash_seed_and_the_processes() -> None:
    command = [sys.executable, "-m", "simulator", "soak", "--seeds", "6", "--first", "30"]
    outputs = [
        subprocess.run(
            [*command, "--processes", processes], check=True, capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed}, timeout=100,
        ).stdout
        for hash_seed, processes in (("1", "1"), ("2", "2"))
    ]  # fmt: skip
    assert outputs[0] == outputs[1] and b"seeds" in outputs[0]


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reports are ignored if the node's name is n0."""
    inner = Endings.reported

    def report(endings: Any, node: Any, message: Any, now_s: float) -> None:
        if node.id != "n0":
            inner(endings, node, message, now_s)

    monkeypatch.setattr(Endings, "reported", report)
    yield


@pytest.mark.usefixtures("bug")
def test_a_failure_is_told_with_the_command_that_replays_it_and_the_history_of_its_job() -> None:
    result = run("--seeds", "2", "--faults", "stall", "--processes", "1")
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith("seed 0: j") and "believes that attempts" in lines[0]
    assert lines[1].strip() == "python -m simulator soak --seed 0 --faults stall"
    for part in ("submits it", ": accepted with epoch 0", "reserved", "is given task", "ends task"):
        assert part in result.output, part
    assert "of which failed" in result.output
    again = run("--seed", "0", "--faults", "stall")
    assert again.exit_code == 1 and again.output.splitlines()[:2] == lines[:2]


def test_a_core_that_raises_is_told_with_where_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probing, "spend", lambda *_: {}["what is not there"])
    _, failure = run_seed(1, ())
    assert failure is not None and failure.problem == "KeyError: 'what is not there'"
    assert any("raised at test_soak.py" in line for line in failure.story)


def test_a_run_that_goes_on_and_on_fails() -> None:
    _, failure = run_seed(3, (), events_max=150)
    assert failure is not None and failure.problem == "it goes on and on"
    assert run("--seed", "3", "--events", "150", "--faults", "none").exit_code == 1


def test_all_is_well() -> None:
    result = run("--seeds", "3", "--processes", "1")
    assert result.exit_code == 0 and "faults: " in result.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--seeds", "0"], "seeds"), (["--events", "-1"], "events"), (["--processes", "0"], "processes"),
     (["--faults", "flood"], "flood")],
)  # fmt: skip
def test_bad_input_is_named(arguments: list[str], named: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, InvalidOption) and named in str(result.exception)


def test_it_is_a_command() -> None:
    assert isinstance(soak_command, click.Command)
