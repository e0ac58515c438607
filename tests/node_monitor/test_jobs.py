"""What a node keeps of jobs, and for how long: common bytes, inputs, attempts."""

from __future__ import annotations

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
