"""The altruistic plane with nodes and clients of which the test says what they do: whom it gives what, and what it is
told of jobs, nodes and times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from scheduler.altruistic import dags
from scheduler.altruistic import plane as planes
from scheduler.altruistic.stage_history import StageHistory
from scheduler.book import validation
from scheduler.options import SchedulerOptions
from sparrow_py.errors import InvalidOption
from sparrow_py.job import FINISHED
from sparrow_py.wire import messages as m
from tests.support.led_rig import LedRig
from tests.support.scheduler_rig import CLIENT, USER, node_info

ROOM = "room"
"""A resource of nodes."""
FREE = m.NodeLoad(4, 4, 0, 0, {})


def node(room: float = 1.0, slots: int = 100, **fields: Any) -> m.NodeInfo:
    """So much of one resource, and slots enough."""
    return node_info(slots, resources={ROOM: room}, **fields)


class Rig(LedRig):
    """A scheduler that leads a node on which nothing can run (`submit` before others come), and those given."""

    def __init__(self, nodes: Mapping[str, m.NodeInfo] | None = None, **options: Any) -> None:
        idle = node_info(1, apps={"another": ""})
        options = {"wait_for_nodes_s": 1000.0, **options}
        super().__init__({"idle": idle, **(nodes or {})}, policy=m.ALTRUISTIC, **options)
        self.now_s = 0.0
        self.ended_s: dict[str, float] = {}
        """When the last task of each job did."""

    def submit(self, job: str, *stages: m.Stage, user: str = USER, name: str = "") -> None:
        """A job of these stages, with all its tasks."""
        submission = m.SubmitJob(job, 0, name, list(stages), 3, False, None, False, wait_for_nodes_s=1000.0)
        tasks = m.AddTasks(job, 0, [b"p"] * sum(stage.task_count for stage in stages), None)
        client = CLIENT if user == USER else f"client of {user}"
        self.client(submission, tasks, client=client, user=user, now_s=self.now_s)
        assert job in self.core.jobs

    def play(self, durations_s: Mapping[tuple[str, int], float], until_s: float = 100.0) -> None:
        """Tasks end once they have run for as long as is said, by job and stage, until all have."""
        ends_s: dict[int, float] = {}
        while any(self.running.values()) or self.core.jobs:
            for launches in self.running.values():
                for attempt, launch in launches.items():
                    ends_s.setdefault(attempt, self.now_s + durations_s[launch.job, launch.stage])
            due = [(ends_s[attempt], attempt, at) for at, launches in self.running.items() for attempt in launches]
            timer_s = self.core.next_deadline_s()
            next_s = min([end_s for end_s, _, _ in due] + ([timer_s] if timer_s is not None else []))
            assert next_s <= until_s, "it does not end"
            self.now_s = max(self.now_s, next_s)
            for end_s, attempt, at in sorted(due):
                if end_s <= self.now_s + 1e-9:
                    self.ended_s[self.running[at][attempt].job] = self.now_s
                    self.end(at, attempt, now_s=self.now_s)
            self.tick(self.now_s)

    def has(self, job: str) -> int:
        """How many of its tasks run."""
        return sum(launch.job == job for launches in self.running.values() for launch in launches.values())

    def reasons(self, job: str, stage: int = 0) -> list[str]:
        """Why tasks of the stage wait."""
        (ask,) = self.plane.explain([self.core.jobs[job].stages[stage]], self.now_s)
        return ask().reasons

    def strangers(self, at: str, slots: int, lane_slots: int = 4) -> None:
        """Tasks of other schedulers hold so many slots of the node's lane."""
        self.node(at, m.NodeLoad(lane_slots - slots - len(self.running[at]), lane_slots, 0, 0, {}), now_s=self.now_s)


def stage(tasks: int, room: float = 0.0, duration_s: float | None = None, name: str = "", *after: str) -> m.Stage:
    """Tasks that demand so much."""
    demand = {ROOM: room} if room else None
    return m.Stage("many", tasks, b"", "", 2.0, 0, duration_s, demand=demand, name=name, after=after)


# ---- whom it gives what -----------------------------------------------------------------------------------


def two_jobs_of_figure_2(rig: Rig) -> dict[tuple[str, int], float]:
    """How long their tasks take. They come before a node that could run them."""
    rig.submit("J1", stage(2, 0.04, 1.0, "S0"), stage(3, 0.21, 1.0, "S1"), stage(1, 0.5, 0.1, "S2", "S0", "S1"))
    rig.submit("J2", stage(2, 0.29, 1.0))
    return {("J1", 0): 1.0, ("J1", 1): 1.0, ("J1", 2): 0.1, ("J2", 0): 1.0}


def test_figure_2_live() -> None:
    """J1 yields what it needs only later, so that J2 ends at 1.0 and J1, as with all that is its own, at 2.1."""
    rig = Rig()
    durations_s = two_jobs_of_figure_2(rig)
    rig.node_up("n", node())
    assert (rig.has("J1"), rig.has("J2")) == (2, 2)
    rig.play(durations_s)
    assert rig.ended_s == {"J1": pytest.approx(2.1), "J2": pytest.approx(1.0)}


def test_drf_of_two_users_by_hand_live() -> None:
    """9 CPUs and 18 GB; tasks of (1, 4) and (3, 1): three and two of them (Ghodsi et al., NSDI 2011, §4.1)."""
    rig = Rig(altruistic_policy="drf")
    for job, demand in (("a", {"cpu": 1.0, "gb": 4.0}), ("b", {"cpu": 3.0, "gb": 1.0})):
        rig.submit(job, m.Stage("many", 9, b"", "", 2.0, 0, 1.0, demand=demand), user=job)
    rig.node_up("n", node_info(100, resources={"cpu": 9.0, "gb": 18.0}))
    assert (rig.has("a"), rig.has("b")) == (3, 2)


def test_users_have_shares_by_their_weights() -> None:
    rig = Rig(altruistic_policy="drf", user_weight=("bob=3",))
    rig.submit("of anna", stage(50, 0.0, 1.0), user="anna")
    rig.submit("of bob", stage(50, 0.0, 1.0), user="bob")
    rig.node_up("n", node_info(8))
    assert (rig.has("of anna"), rig.has("of bob")) == (2, 6)


def test_a_job_of_which_nobody_knows_how_long_it_takes_has_its_share_and_yields_nothing() -> None:
    """The other's one task is all that it needs of its half; what it leaves is the first's."""
    rig = Rig()
    rig.submit("unknown", stage(10))
    rig.submit("known", stage(1, 0.0, 1.0, "first"), stage(1, 0.0, 1.0, "next", "first"))
    rig.node_up("n", node_info(4))
    assert rig.has("unknown") >= 2
    assert "nobody knows how long its tasks take: it yields nothing, and has its share" in rig.reasons("unknown")


def test_a_job_that_waits_says_what_it_may_use_and_that_it_yields() -> None:
    rig = Rig()
    two_jobs_of_figure_2(rig)
    rig.node_up("n", node())
    share, plan, room = rig.reasons("J1", 1)
    assert share.startswith("its share is 50% of room: it may use 0.5")
    assert plan.startswith("it is to end in 2.1 s: for that 1 of its tasks may start 1 s from now")
    assert room == "no node has room: 0 of 1 node that may run them has room for one"


def test_a_task_that_yields_starts_when_it_must_though_nothing_ends() -> None:
    """With nothing lent beside plans, the plan's own time is what starts the last stage's tasks."""
    rig = Rig(altruistic_policy="altruistic/lend=profile")
    last = stage(1, 0.1, 1.0, "last", "short", "long")
    rig.submit("slack", stage(1, 0.1, 1.0, "short"), stage(1, 0.1, 5.0, "long"), last)
    rig.submit("other", stage(30, 0.3, 2.0))
    rig.node_up("n", node())
    rig.play({("slack", 0): 1.0, ("slack", 1): 5.0, ("slack", 2): 1.0, ("other", 0): 2.0})
    assert rig.ended_s["slack"] == pytest.approx(6.0)


# ---- what it learns ---------------------------------------------------------------------------------------


def test_what_tasks_of_a_stage_take_is_known_when_its_job_comes_again() -> None:
    rig = Rig({"n": node_info(2)})
    rig.submit("first", stage(4, name="map"), name="nightly")
    live = rig.core.jobs["first"].stages[0].plan.live
    assert not live.can_yield
    while rig.has("first"):
        rig.end("n", next(iter(rig.running["n"])))
    rig.submit("second", stage(4, name="map"), name="nightly")
    live = rig.core.jobs["second"].stages[0].plan.live
    assert live.can_yield and live.plans[0].duration_s == 1.0
    rig.submit("third", stage(4, name="map"), name="of another", user="bob")
    assert not rig.core.jobs["third"].stages[0].plan.live.can_yield


def test_the_first_tasks_of_a_stage_say_how_long_the_others_take() -> None:
    rig = Rig({"n": node_info(2)})
    rig.submit("j", stage(20))
    assert not rig.plane._allocator.jobs["j"].can_yield
    for _ in range(5):
        rig.end("n", next(iter(rig.running["n"])), now_s=1.0)
    here = rig.plane._allocator.jobs["j"]
    assert here.can_yield and 1.0 <= here.job.dag.duration_s[0] <= 1.5


def test_a_history_that_is_given_is_used_and_told() -> None:
    """What the daemon keeps in a file."""
    history = StageHistory()
    rig = Rig({"n": node_info(2)})
    rig.plane._history = history
    rig.submit("j", stage(2, 0.0, 1.0, "map"), name="nightly")
    for _ in range(2):
        rig.end("n", next(iter(rig.running["n"])))
    assert len(history) == 1


# ---- what happens at nodes --------------------------------------------------------------------------------


def test_what_a_node_hands_back_goes_to_another_and_to_it_only_once_it_is_forgiven() -> None:
    rig = Rig({"a": node_info(1), "b": node_info(1)})
    rig.submit("j", stage(2, 0.0, 1.0))
    (attempt,) = rig.running["a"]
    rig.hand_back("a", attempt)
    assert rig.has("j") == 1, "b is full, and a is left alone"
    rig.tick(5.0)
    assert rig.has("j") == 2 and rig.running["a"]


def test_tasks_of_a_lost_node_start_elsewhere() -> None:
    rig = Rig({"a": node_info(2), "b": node_info(2)})
    rig.submit("j", stage(4, 0.0, 1.0))
    rig.node_down("a")
    assert rig.has("j") == 2
    rig.node_up("c", node_info(2))
    assert rig.has("j") == 4


def test_jobs_with_plans_wait_while_no_node_is_there_and_go_on_with_the_next() -> None:
    rig = Rig({"n": node(1.0)})
    durations_s = two_jobs_of_figure_2(rig)
    rig.node_down("n")
    rig.submit("J3", stage(1, 0.5, 1.0))
    rig.now_s = 5.0
    rig.tick(5.0)
    assert [rig.has(job) for job in ("J1", "J2", "J3")] == [0, 0, 0]
    assert "no node has the resources that its tasks need: it is planned once one has" in rig.reasons("J3")
    rig.node_up("m", node(1.0), now_s=5.0)
    rig.play({**durations_s, ("J3", 0): 1.0})
    assert set(rig.ended_s) == {"J1", "J2", "J3"}


def test_what_others_hold_at_a_node_is_not_given_away_until_they_have_gone() -> None:
    rig = Rig({"n": node_info(4)})
    rig.strangers("n", 3)
    rig.submit("j", stage(4, 0.0, 1.0))
    assert rig.has("j") == 1
    rig.strangers("n", 0)
    assert rig.has("j") == 4


def test_a_node_whose_state_is_not_ready_gets_nothing_more() -> None:
    rig = Rig({"n": node_info(2), "other": node_info(1)})
    rig.node("n", m.NodeState("cordoned", "by hand"))
    rig.submit("j", stage(3, 0.0, 1.0))
    assert rig.has("j") == 1 and not rig.running["n"]
    rig.node("n", m.NodeState(m.READY, ""))
    assert rig.has("j") == 3


def test_a_node_with_a_new_resource_has_it_weighed() -> None:
    rig = Rig({"n": node_info(4)})
    rig.submit("old", stage(2, 0.0, 1.0))
    rig.submit("new", stage(3, 0.4, 1.0))
    assert rig.has("old") == 2 and rig.has("new") == 0
    rig.node_up("with room", node(1.0))
    assert rig.has("old") == 2 and rig.has("new") == 2 and len(rig.plane._columns) == 2


def test_nodes_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "GONE_MAX", 4)
    rig = Rig({"n": node_info(1)})
    rig.submit("j", stage(100, 0.0, 1.0))
    for number in range(30):
        rig.node_up(f"n{number}", node_info(1))
        assert rig.has("j") == 2
        rig.node_down(f"n{number}")
    assert len(rig.plane._allocator.machines) <= 2 * (2 + 4)


def test_resources_beyond_those_that_are_weighed_are_left_to_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "RESOURCES_MAX", 2)
    rig = Rig({"n": node_info(4, resources={"a": 1.0, "b": 1.0})})
    rig.submit("j", m.Stage("many", 2, b"", "", 2.0, 0, 1.0, demand={"b": 1.0}))
    assert len(rig.plane._columns) == 2 and rig.has("j") >= 1


# ---- which nodes tasks may use ----------------------------------------------------------------------------


def test_tasks_go_where_their_stage_may_run() -> None:
    rig = Rig({"a": node_info(2, apps={"another": ""}), "b": node_info(2)})
    rig.submit("j", stage(4, 0.0, 1.0))
    assert rig.has("j") == 2 and len(rig.running["b"]) == 2


def test_tasks_that_prefer_nodes_wait_for_these() -> None:
    rig = Rig({"a": node_info(2), "b": node_info(2)})
    details = {task: m.TaskDetail(("b",), ()) for task in range(3)}
    rig.submit_job(4, job="j", details=details, local=True, expected_duration_s=1.0)
    assert {task: at for task, at in rig.placed("j").items() if task < 3} == {0: "b", 1: "b"}
    assert rig.placed("j")[3] == "a"
    rig.end("b", next(iter(rig.running["b"])))
    assert rig.placed("j")[2] == "b"


# ---- what cannot be ---------------------------------------------------------------------------------------


def test_a_job_of_more_tasks_than_are_planned_is_refused_by_the_field() -> None:
    rig = Rig({"n": node_info(1)})
    rig.client(m.SubmitJob("j", 0, "", [stage(dags.TASKS_MAX + 1)], 3, False, None, False))
    (refused,) = rig.take(m.JobRefused)
    assert "task_count" in str(refused) and f"{dags.TASKS_MAX}" in str(refused).replace(",", "")


def test_the_book_and_the_planner_have_the_same_limits() -> None:
    assert validation.ALTRUISTIC_TASKS_MAX == dags.TASKS_MAX
    assert validation.STAGES_MAX == dags.GROUPS_MAX


def test_a_stage_without_tasks_is_no_obstacle() -> None:
    rig = Rig({"n": node_info(2)})
    rig.submit("j", stage(0, 0.0, 1.0, "none"), stage(2, 0.0, 1.0, "some", "none"))
    assert rig.has("j") == 2


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("carbyne", "'carbyne' is not valid; allowed: altruistic, drf"),
        ("altruistic/altruism=2", "altruism: 2.0 is not valid; allowed: from 0 to 1"),
        ("altruistic/horizon=year", "horizon: 'year' is not valid; allowed: barrier, dag"),
        ("altruistic/speed=1", "'speed' is no setting; there are altruism"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_by_its_name(policy: str, says: str) -> None:
    with pytest.raises(InvalidOption, match="altruistic_policy: ") as raised:
        Rig(altruistic_policy=policy)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("queues", "says"),
    [
        (("ada",), "key=value"),
        (("ada=much",), "could not convert string to float: 'much'"),
        (("ada=0",), "guaranteed: 0.0 is not valid; allowed: above 0, up to 1"),
        (("ada=nan",), "guaranteed: nan is not valid"),
        (("ada=0.5:0.4",), "most: 0.4 is not valid; allowed: from guaranteed (0.5) to 1"),
        (("ada=0.7", "bob=0.6"), "parts up to 1 in all (guaranteed: 1.3 in all queues"),
        (("ada=0.5", "ada=0.2"), "each key once"),
    ],
)
def test_queues_that_cannot_be_are_refused_by_the_field(queues: tuple[str, ...], says: str) -> None:
    with pytest.raises(InvalidOption, match="altruistic_queue: ") as raised:
        Rig(altruistic_policy="capacity", altruistic_queue=queues)
    assert says in str(raised.value)


def test_queues_are_for_the_capacity_scheduler_alone() -> None:
    with pytest.raises(InvalidOption, match="nothing but with altruistic_policy=capacity"):
        Rig(altruistic_queue=("ada=0.5",))


def test_a_queue_has_what_is_guaranteed_to_it_and_no_more_than_its_most() -> None:
    rig = Rig(altruistic_policy="capacity", altruistic_queue=("ada=0.25:0.5",))
    rig.submit("of ada", stage(50, 0.0, 1.0), user="ada")
    rig.submit("of bob", stage(1, 0.0, 1.0), user="bob")
    rig.node_up("n", node_info(8))
    assert (rig.has("of ada"), rig.has("of bob")) == (4, 1)


@pytest.mark.parametrize("option", [{"altruistic_policy": "drf"}, {"stage_history": "x.db"}])
@pytest.mark.parametrize("policy", ["sparrow", "flow"])
def test_options_of_the_plane_need_it(policy: str, option: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match="needs --policy altruistic"):
        SchedulerOptions(policy=policy, **option)


def test_all_that_is_kept_of_jobs_goes_with_them() -> None:
    rig = Rig({"n": node_info(2)})
    rig.submit("a", stage(3, 0.0, 1.0))
    rig.submit("b", stage(3, 0.0, 1.0))
    rig.client(m.CancelJob("b", running=True))
    while rig.running["n"]:
        attempt, launch = next(iter(rig.running["n"].items()))
        rig.end("n", attempt, FINISHED if launch.job == "a" else m.TaskStatus.CANCELLED)
    assert not rig.core.jobs and not rig.plane.left_over()
    assert not rig.plane._allocator.jobs and not rig.plane._touched
