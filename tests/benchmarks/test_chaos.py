"""The chaos rounds: shares, plans and the journal; a seed is a plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.chaos import plan, shares
from benchmarks.chaos.journal import Journal, key
from benchmarks.chaos.plan import Plan, Scene
from benchmarks.chaos.player import Played
from benchmarks.laboratory import kinds
from benchmarks.laboratory.evidence import Evidence, Program
from benchmarks.laboratory.jobs import Way
from benchmarks.laboratory.told import Event
from tests.support.evidence import evidence_of, job, line, planned, run

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


def test_shares_of_tasks_that_are_pushed_are_those_of_each_node() -> None:
    """Ada has most of her tasks at one node, and Grace at the other."""
    round_, found = streams({"ada": 60, "grace": 40}, placement="random")
    assert len(list(shares.judge(round_, found))) == 2, "one node, and they are equals"
    found.slots["node-1"] = found.slots["node-0"]
    found.runs = [replace(one, host="node-1+0") if one.job == "grace" else one for one in found.runs]
    assert not list(shares.judge(round_, found)), "each is alone where it is"


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
