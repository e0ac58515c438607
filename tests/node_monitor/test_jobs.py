"""What a node keeps of jobs, and for how long: common bytes, inputs, attempts."""

from __future__ import annotations

from node_monitor.jobs import Jobs, LocalJob
from sparrow_py.executors import executor_protocol as x
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve


def test_the_common_bytes_go_when_the_job_and_its_last_run_have_ended() -> None:
    rig = NodeCore()
    rig.receive(reserve(1, app="pool"), m.Common("j1", 0, b"f"))
    rig.launches(1, ask=1)
    rig.receive(m.ForgetJob("j1"))
    assert not rig.take(x.ForgetCommon)
    rig.done("p0", 1)
    assert len(rig.take(x.ForgetCommon)) == 1 and not rig.core.jobs.by_key


def test_common_bytes_that_come_again_outlive_an_orphan_of_the_job() -> None:
    """The link broke and came back while a task ran: it ends between the job's Common and its Launch."""
    rig = NodeCore(2)
    rig.receive(reserve(1, app="pool"), m.Common("j1", 0, b"f"))
    rig.launches(1, ask=1)
    rig.core.scheduler_down("s", 0.0)
    rig.core.scheduler_up("s")
    rig.receive(reserve(2, app="pool", job="j1"), m.Common("j1", 0, b"f"))
    rig.done("p1", 1)
    rig.take(x.Run)
    rig.launches(9, ask=2)
    (run,) = rig.take(x.Run)
    assert run.common == rig.core.jobs.by_key["s", "j1"].commons[0].number


class Kept:
    """`Jobs`, and what they said is gone."""

    def __init__(self) -> None:
        self.unpinned: list[int] = []
        self.forgotten: list[list[int]] = []
        self.jobs = Jobs(self.unpinned.append, self.forgotten.append)

    def common(self, scheduler: str, data: bytes, timeout_s: float | None = None, stage: int = 0) -> LocalJob:
        self.jobs.common(scheduler, m.Common("j", stage, data, timeout_s, instance=7, once=True), 0.0)
        return self.jobs.by_key[scheduler, "j"]


def test_the_same_common_bytes_again_keep_their_number_and_others_get_a_new_one() -> None:
    kept = Kept()
    job = kept.common("s", b"f")
    first = job.commons[0]
    kept.common("s", b"f", 2.0)
    assert job.commons[0] is first and first.task_timeout_s == 2.0 and (job.instance, job.once) == (7, True)
    kept.common("s", b"g")
    kept.common("s", b"f", stage=1)
    assert job.commons[0].data == b"g" and len(set(job.numbers)) == 3
    kept.jobs.forget(job)
    assert kept.forgotten == [job.numbers] and not kept.jobs.by_key


def test_a_job_goes_with_its_last_attempt_and_not_if_its_scheduler_speaks_of_it_again() -> None:
    kept = Kept()
    job = kept.common("s", b"f")
    job.attempts = 1
    kept.jobs.forget(job)
    assert job.forgotten and kept.jobs.by_key and not kept.unpinned
    kept.jobs.input("s", m.Input("j", 3, b"r"), 0.0)
    assert not job.forgotten and job.inputs == {3: b"r"}


def test_jobs_of_one_id_at_two_schedulers_are_two() -> None:
    kept = Kept()
    one, other = kept.common("s", b"f"), kept.common("t", b"f")
    assert one is not other and one.number != other.number
    kept.jobs.scheduler_down("s")
    assert list(kept.jobs.by_key) == [("t", "j")] and kept.unpinned == [one.number]


def test_a_job_that_is_handed_over_leaves_its_name_where_it_was_until_that_scheduler_forgets_it() -> None:
    """A fence is looked up by the job's user and instance, and the earlier scheduler may go on to launch."""
    kept = Kept()
    job = kept.common("old", b"f")
    job.owner, job.attempts = ("anna", 7), 2
    assert kept.jobs.hand_over(job, "new") is job
    assert kept.jobs.by_key["new", "j"] is job and job.scheduler == "new"
    left = kept.jobs.by_key["old", "j"]
    assert (left.owner, left.instance, left.attempts, left.commons) == (("anna", 7), 7, 0, {})


def test_a_job_that_the_new_scheduler_has_begun_gets_the_attempts_of_the_old_one() -> None:
    kept = Kept()
    job, there = kept.common("old", b"f"), kept.common("new", b"f")
    job.attempts, there.attempts = 2, 1
    numbers = {*job.numbers, *there.numbers}
    assert kept.jobs.hand_over(job, "new") is there
    assert there.attempts == 3 and set(there.numbers) == numbers and kept.unpinned == [job.number]


def test_results_that_a_task_asks_for_come_in_the_order_in_which_it_asks() -> None:
    job = Kept().common("s", b"f")
    job.inputs = {task: b"%d" % task for task in range(5)}
    assert job.inputs_of([(3, 2), (0, 1), (2, 0)]) == [b"3", b"4", b"0"]
