"""Rounds of the flow plane: what happens is gathered, solved, checked and sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.flow.stage_limits import is_wanted_near, near_of
from sparrow_py.constraints import Constraint
from sparrow_py.job import FINISHED, LOST, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.flow_rig import FirstFit, FlowRig
from tests.support.recorder import submission
from tests.support.scheduler_rig import node_info


def test_tasks_are_placed_in_lanes_and_their_outcomes_reach_the_client() -> None:
    rig = FlowRig(["n1", "n2"])
    rig.submit_job(6)
    assert sorted(rig.placed().values()) == ["n1"] * 4 + ["n2"] * 2
    assert rig.end_all() == 6
    assert rig.outcomes() == [(task, FINISHED, 1) for task in range(6)]
    assert not rig.core.jobs and not rig.plane.left_over()


def test_tasks_beyond_the_slots_wait_for_one() -> None:
    rig = FlowRig({"n1": node_info(2)})
    rig.submit_job(5)
    assert sorted(rig.placed()) == [0, 1]
    rig.end("n1", next(iter(rig.running["n1"])))
    assert sorted(rig.placed()) == [1, 2]
    assert rig.end_all() == 4


def test_one_round_is_under_way_at_a_time_and_what_happens_meanwhile_goes_into_the_next() -> None:
    rig = FlowRig(["n1"], inline=False)
    rig.submit_job(1, job="a")
    rig.submit_job(1, job="b")
    rig.submit_job(1, job="c")
    assert len(rig.outbox.problems) == 1
    rig.solve()
    assert len(rig.outbox.problems) == 1
    rig.solve()
    rig.after(0.0)
    assert not rig.outbox.problems
    assert {launch.job for launch in rig.running["n1"].values()} == {"a", "b", "c"}
    assert [len(changes.tasks) for changes in rig.networks[0].rounds] == [1, 2]


def test_a_job_without_waiting_tasks_costs_no_round() -> None:
    rig = FlowRig(["n1"])
    rig.submit_job(2)
    rounds = len(rig.networks[0].rounds)
    rig.end_all()
    rig.node_up("n2")
    rig.tick(100.0)
    assert len(rig.networks[0].rounds) == rounds
    assert rig.core.next_deadline_s() is None or rig.core.next_deadline_s() > 1.5


def test_a_placement_at_a_node_that_is_gone_is_stale_and_the_task_goes_elsewhere_at_once() -> None:
    rig = FlowRig(["n1", "n2"], inline=False)
    rig.submit_job(1)
    rig.node_down("n1")
    rig.solve()
    assert rig.plane.rounds.stale == 1
    rig.solve()
    rig.after(0.0)
    assert rig.placed() == {0: "n2"}


def test_a_task_that_was_cancelled_meanwhile_is_not_placed() -> None:
    rig = FlowRig(["n1"], inline=False)
    rig.submit_job(3)
    rig.client(m.CancelTasks("j", [1]))
    while rig.solve():
        pass
    rig.after(0.0)
    assert sorted(rig.placed()) == [0, 2]


def test_a_task_that_is_handed_back_goes_to_another_node() -> None:
    rig = FlowRig(["n1", "n2"])
    rig.submit_job(1)
    (node,), (attempt,) = [one for one, has in rig.running.items() if has], rig.running["n1"]
    rig.hand_back(node, attempt)
    assert rig.placed() == {0: "n2"}
    assert rig.end_all() == 1
    assert rig.outcomes() == [(0, FINISHED, 1)]


def test_a_node_that_has_handed_tasks_back_gets_some_again_after_a_while() -> None:
    rig = FlowRig(["n1"])
    rig.submit_job(1)
    rig.hand_back("n1", *rig.running["n1"])
    assert rig.placed() == {}
    for now_s in range(1, 8):
        rig.tick(float(now_s))
    assert rig.placed() == {0: "n1"}


def test_a_node_that_wants_no_task_of_a_stage_for_good_gets_none_until_it_offers_other_things() -> None:
    rig = FlowRig({"n1": node_info(1), "n2": node_info(1)})
    rig.submit_job(2)
    rig.hand_back("n1", *rig.running["n1"], lasting=True)
    for now_s in range(1, 8):
        rig.tick(float(now_s))
    assert list(rig.placed().values()) == ["n2"]
    rig.node("n1", m.NodeChanged(node_info(1)), now_s=8.0)
    assert sorted(rig.placed().values()) == ["n1", "n2"]


def test_tasks_are_lost_with_the_reason_if_no_node_wants_them_for_good() -> None:
    rig = FlowRig(["n1"])
    rig.submit_job(1)
    rig.hand_back("n1", *rig.running["n1"], lasting=True)
    rig.tick(0.0)
    (outcome,) = rig.take(m.Outcome)
    assert outcome.status is TaskStatus.LOST and "it waited for too long" in outcome.error


def test_what_others_hold_at_a_node_is_left_to_them() -> None:
    rig = FlowRig(["n1"])
    rig.node("n1", m.NodeLoad(1, 3, 0, 0, {}))
    rig.submit_job(3)
    assert len(rig.placed()) == 1
    rig.node("n1", m.NodeLoad(1, 3, 0, 0, {}))
    assert len(rig.placed()) == 2
    rig.node("n1", m.NodeLoad(1, 3, 0, 0, {}))
    assert len(rig.placed()) == 3


def test_a_demand_is_met_and_no_resource_given_twice() -> None:
    rig = FlowRig({"n1": node_info(4, resources={"gpu": 1.0}), "n2": node_info(4)})
    rig.submit_job(3, demand={"gpu": 0.5})
    assert rig.placed() == {0: "n1", 1: "n1"}
    rig.end_all()
    assert len(rig.outcomes()) == 3


def test_constraints_hold() -> None:
    rig = FlowRig({"n1": node_info(4), "n2": node_info(4, attributes={"zone": "b"})})
    rig.submit_job(2, where=(Constraint("zone", "==", ("b",)),))
    assert set(rig.placed().values()) == {"n2"}


def test_a_task_goes_to_a_node_that_it_prefers_or_waits() -> None:
    rig = FlowRig({"n1": node_info(1), "n2": node_info(1)})
    rig.submit_job(3, local=True, details={0: m.TaskDetail(("n2",)), 1: m.TaskDetail(("n2",))})
    assert rig.placed() == {0: "n2", 2: "n1"}
    rig.end("n1", *rig.running["n1"])
    assert rig.placed() == {0: "n2"}
    assert rig.end_all() == 2


def test_a_task_takes_any_node_once_its_preferred_ones_had_their_time() -> None:
    rig = FlowRig({"n1": node_info(1), "n2": node_info(1)})
    rig.submit_job(2, local=True, delay_s=3.0, details={task: m.TaskDetail(("n2",)) for task in range(2)})
    assert rig.placed() == {0: "n2"}
    rig.tick(3.1)
    assert rig.placed() == {0: "n2", 1: "n1"}


def test_jobs_that_avoid_each_other_do_not_share_a_node() -> None:
    rig = FlowRig({"n1": node_info(4), "n2": node_info(4)})
    rig.submit_job(2, job="a")
    rig.submit_job(2, job="b", avoid=("a",))
    assert set(rig.placed("a").values()) == {"n1"}
    assert set(rig.placed("b").values()) == {"n2"}


def test_no_more_than_so_many_tasks_at_a_node() -> None:
    rig = FlowRig({"n1": node_info(4), "n2": node_info(4)})
    rig.submit_job(3, max_per_node=1)
    assert sorted(rig.placed().values()) == ["n1", "n2"]
    assert rig.end_all() == 3


def test_a_gang_is_placed_whole_or_not() -> None:
    rig = FlowRig({"n1": node_info(2), "n2": node_info(1)})
    rig.submit_job(1, job="other")
    rig.submit_job(3, job="gang", gang=True)
    assert rig.placed("gang") == {}
    rig.end("n1", next(iter(rig.running["n1"])))
    assert len(rig.placed("gang")) == 3


def test_a_gang_of_which_a_placement_is_stale_waits_whole() -> None:
    rig = FlowRig({"n1": node_info(2), "n2": node_info(1)}, inline=False)
    rig.submit_job(3, gang=True)
    rig.node_down("n2")
    rig.solve()
    rig.after(0.0)
    assert rig.placed() == {}
    assert rig.plane.rounds.stale == 3
    rig.node_up("n3", node_info(1))
    while rig.solve():
        pass
    rig.after(0.0)
    assert len(rig.placed()) == 3


def test_cordoned_nodes_get_nothing_until_they_are_ready_again() -> None:
    rig = FlowRig(["n1"])
    rig.node("n1", m.NodeState(m.CORDONED, "an operator"))
    rig.submit_job(1)
    assert rig.placed() == {}
    rig.node("n1", m.NodeState(m.READY, ""))
    assert rig.placed() == {0: "n1"}


def test_what_ran_at_a_lost_node_starts_elsewhere() -> None:
    rig = FlowRig(["n1"])
    rig.submit_job(4)
    rig.node_down("n1")
    rig.node_up("n2")
    assert set(rig.placed().values()) == {"n2"}
    assert rig.end_all() == 4
    assert rig.outcomes() == [(task, FINISHED, 2) for task in range(4)]


def test_tasks_time_out_that_find_no_place() -> None:
    rig = FlowRig({"n1": node_info(1)})
    rig.submit_job(2, queue_timeout_s=5.0)
    for now_s in range(1, 6):
        rig.tick(float(now_s))
    assert [status for _, status, _ in rig.outcomes()] == [LOST]
    assert rig.end_all() == 1
    assert not rig.core.jobs


def test_tasks_that_no_node_may_run_are_lost_after_a_while() -> None:
    rig = FlowRig(["n1"], wait_for_nodes_s=3.0)
    rig.submit_job(1)
    rig.node_down("n1")
    rig.node_up("n2", node_info(apps={"other": ""}))
    for now_s in range(1, 5):
        rig.tick(float(now_s))
    assert [status for _, status, _ in rig.outcomes()] == [LOST]


def test_stages_open_one_after_the_other() -> None:
    rig = FlowRig(["n1"])
    stages = [
        m.Stage("many", 2, b"", "", 1.0, 0, None, name="map"),
        m.Stage("many", 1, b"", "", 1.0, 0, None, name="reduce", after=("map",)),
    ]
    job = m.SubmitJob("j", 0, "", stages, max_attempts=1, retry_failed=False, queue_timeout_s=None, report_placed=False)
    rig.client(job, m.AddTasks("j", 0, [b"p"] * 3, {2: m.TaskDetail((), ((0, 2),))}))
    assert sorted(rig.placed()) == [0, 1]
    assert rig.end_all() == 3
    assert len(rig.outcomes()) == 3


class Wrong(FirstFit):
    """Fails in its first round."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Wrong.made += 1
        self.number = Wrong.made

    def round(self, changes: object, stop: object = None) -> object:  # type: ignore[override]
        if self.number == 1:
            raise ValueError("costs are no numbers")
        return super().round(changes, stop)  # type: ignore[arg-type]


def test_a_round_that_fails_is_lost_and_the_next_comes_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrong, "made", 0)
    rig = FlowRig(["n1"], network=Wrong)
    rig.submit_job(2)
    assert rig.placed() == {} and rig.plane.rounds.failed == 1
    rig.tick(0.2)
    assert len(rig.placed()) == 2
    assert len(rig.networks) == 2


def test_pauses_between_failing_rounds_grow_and_end() -> None:
    class Never(FirstFit):
        def round(self, changes: object, stop: object = None) -> object:  # type: ignore[override]
            raise ValueError("never")

    rig = FlowRig(["n1"], network=Never)
    rig.submit_job(1)
    now_s = 0.0
    for _ in range(300):
        now_s += 0.1
        rig.tick(now_s)
    assert 8 <= rig.plane.rounds.failed <= 15
    rig.client(m.CancelJob("j"), now_s=now_s)
    assert not rig.core.jobs and not rig.plane.left_over()


def test_while_tasks_wait_there_is_a_round_each_second_as_waiting_gets_dearer() -> None:
    rig = FlowRig({"n1": node_info(1)})
    rig.submit_job(2)
    network = rig.networks[0]
    before = len(network.rounds)
    for tenth in range(1, 51):
        rig.tick(tenth / 10)
    assert 4 <= len(network.rounds) - before <= 6
    assert network.rounds[-1].now_s > 4.0


def test_no_more_tasks_are_weighed_at_a_time_than_may_be_and_the_others_follow() -> None:
    rig = FlowRig({"n1": node_info(2)}, flow_tasks_max=3)
    rig.submit_job(20)
    assert len(rig.networks[0].tasks) <= 3
    assert rig.end_all() == 20
    assert not rig.core.jobs


def test_no_user_fills_the_network_for_all() -> None:
    """A quarter of the room is for users who have less than that in it."""
    rig = FlowRig({"n1": node_info(1)}, flow_tasks_max=8)
    rig.submit_job(20, job="many", user="ada")
    rig.submit_job(20, job="more", user="ada")
    (network,) = rig.networks
    assert len(network.tasks) <= 6
    rig.submit_job(5, job="few", user="bob", client="other")
    assert {task.user for task in network.tasks.values()} == {"ada", "bob"}
    assert rig.end_all() == 45 and not rig.core.jobs


def test_tasks_that_no_node_may_run_take_no_room_in_the_network() -> None:
    rig = FlowRig({"n1": node_info(1)}, flow_tasks_max=4)
    where = (Constraint("node", "in", ("n2",)),)
    rig.submit_job(20, job="nowhere", where=where, wait_for_nodes_s=1000.0)
    rig.submit_job(3, job="here")
    assert rig.end_all() == 3
    rig.node_up("n2", node_info(4))
    assert rig.end_all() == 20 and not rig.core.jobs


def test_only_what_has_changed_is_told() -> None:
    rig = FlowRig({"n1": node_info(2), "n2": node_info(2)})
    rig.submit_job(9)
    rounds = rig.networks[0].rounds
    rig.end("n1", next(iter(rig.running["n1"])))
    told = len(rounds)
    rig.end("n1", next(iter(rig.running["n1"])))
    (last,) = rounds[told:]
    assert len(last.tasks_gone) == 1  # Placed in the round before; that its slot is free again makes two of it.
    assert not last.machines and not last.tasks and not last.kinds


def test_users_shares_are_told_with_what_they_hold() -> None:
    rig = FlowRig({"n1": node_info(2)}, user_weight=("bob=3",))
    rig.submit_job(2, job="a", user="anna")
    rig.submit_job(2, job="b", user="bob", client="d")
    rig.submit_job(2, job="c", user="anna")
    shares = rig.networks[0].rounds[-1].shares
    assert (shares["anna"].weight, shares["anna"].running) == (1.0, 2)
    assert (shares["bob"].weight, shares["bob"].running) == (3.0, 0)


def test_durations_are_learned_from_tasks_that_ran() -> None:
    rig = FlowRig(["n1"])
    rig.submit_job(1, job="a", name="nightly")
    rig.end_all()
    rig.submit_job(1, job="b", name="nightly")
    assert rig.networks[0].rounds[-1].tasks[0].duration_s == 1.0
    rig.submit_job(1, job="c", name="nightly", expected_duration_s=7.0)
    assert rig.networks[0].rounds[-1].tasks[0].duration_s == 7.0


def test_a_job_that_may_start_once_starts_only_at_nodes_that_its_client_knows() -> None:
    rig = FlowRig({"n1": node_info(memory="m1")})
    rig.client(submission("j", 1, max_attempts=1, acknowledges=True), m.AddTasks("j", 0, [b"p"]))
    assert rig.placed() == {}
    (using,) = rig.take(m.Using)
    rig.client(m.UsingKnown("j", using.number))
    assert rig.placed() == {0: "n1"}


@pytest.mark.parametrize("status", [TaskStatus.FAILED, TaskStatus.LOST])
def test_what_failed_starts_again_as_its_job_says(status: TaskStatus) -> None:
    rig = FlowRig(["n1"])
    rig.submit_job(1, retry_failed=True)
    rig.end("n1", *rig.running["n1"], status=status)
    assert rig.placed() == {0: "n1"}
    rig.end_all()
    assert rig.outcomes() == [(0, FINISHED, 2)]


def test_a_gang_that_cannot_fit_is_refused_and_others_go_on() -> None:
    rig = FlowRig({"n1": node_info(2), "n2": node_info(1)})
    rig.submit_job(4, job="gang", gang=True)
    rig.submit_job(1, job="other")
    reasons = {outcome.error for outcome in rig.take(m.Outcome) if outcome.job == "gang"}
    assert reasons == {"a gang of 4 tasks needs as many places at once; the 2 nodes that may run it have 3"}
    assert len(rig.placed("other")) == 1


def test_a_gang_is_told_what_is_kept_for_sampled_tasks() -> None:
    rig = FlowRig({f"n{number}": node_info(2) for number in range(4)})
    for number in range(4):
        rig.node(f"n{number}", m.NodeLoad(1, 1, 0, 0, {}))
    rig.submit_job(5, job="gang", gang=True)
    (reason,) = {outcome.error for outcome in rig.take(m.Outcome)}
    assert reason == (
        "a gang of 5 tasks needs as many places at once; the 4 nodes that may run it have 4 "
        "(of 8 slots short_share keeps 4 for sampled tasks)"
    )


def test_a_gang_that_did_fit_waits_for_nodes_that_have_gone() -> None:
    rig = FlowRig({"n1": node_info(2)}, wait_for_nodes_s=5.0)
    rig.submit_job(2, job="other")
    rig.submit_job(2, job="gang", gang=True)
    rig.node_down("n1", 1.0)
    rig.node_up("n2", node_info(1), 1.0)
    rig.tick(3.0)
    assert not rig.outcomes()
    for now_s in range(4, 9):
        rig.tick(float(now_s))
    assert {outcome.job for outcome in rig.take(m.Outcome)} == {"gang"}


def test_it_is_explained_why_tasks_wait() -> None:
    rig = FlowRig({"n1": node_info(1)}, flow_tasks_max=1)
    rig.submit_job(3)
    stage = rig.core.jobs["j"].stages[0]
    room = "1 of its tasks waits for room: flow_tasks_max = 1"
    taken = "the slots for placed tasks are taken at the node that may run it"
    (ask,) = rig.plane.explain([stage], 1.0)
    assert ask().reasons == [taken, room, "the next round weighs it"]


def staged(count: int, **fields: Any) -> tuple[m.SubmitJob, m.AddTasks]:
    """A job of so many stages with a task each, of which the last one is to be near the first."""
    stages = [m.Stage("many", 1, b"", "", 1.0, 0, None, name=f"s{number}", **fields) for number in range(count)]
    stages[-1] = msgspec.structs.replace(stages[-1], after=("s0",), together_with="s0")
    job = m.SubmitJob("j", 0, "", stages, max_attempts=1, retry_failed=False, queue_timeout_s=None, report_placed=False)
    return job, m.AddTasks("j", 0, [b"p"] * count)


def test_nodes_are_looked_at_once_for_all_stages_that_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = FlowRig({f"n{number}": node_info(1, resources={"gpu": 1.0}) for number in range(3)})
    rig.client(*staged(12, demand={"gpu": 0.7}))
    looked_at: list[str] = []
    slots_free = rig.plane._view.slots_free
    monkeypatch.setattr(rig.plane._view, "slots_free", lambda node: looked_at.append(node.id) or slots_free(node))
    waiting = [stage for stage in rig.core.jobs["j"].stages if stage.open and stage.unplaced]
    asks = rig.plane.explain(waiting, 1.0)
    assert len(asks) == 8 and sorted(looked_at) == ["n0", "n1", "n2"]
    assert {ask().reasons[0] for ask in asks} == {"the slots for placed tasks are taken at all 3 nodes that may run it"}


def test_stages_of_a_job_look_up_once_which_of_them_are_to_be_near_others() -> None:
    rig = FlowRig()
    rig.node_up("n1", node_info(4))
    rig.client(*staged(60))
    stages = rig.core.jobs["j"].stages
    assert len({id(stage.plan.relations) for stage in stages}) == 1
    assert [stage.spec.name for stage in stages if is_wanted_near(stage)] == ["s0"]
    assert near_of(stages[-1]) is stages[0] and near_of(stages[1]) is None
    assert rig.end_all() == 60 and not rig.core.jobs
