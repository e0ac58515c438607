"""What executors say of their runs: results, service times, and what they may not say."""

from __future__ import annotations

import pytest

from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

FINISHED, LOST = TaskStatus.FINISHED, TaskStatus.LOST


@pytest.mark.parametrize(
    "done",
    [
        x.Done(99, FINISHED, b"", "", 0.0, 0.1),
        x.Done(1, LOST, b"", "", 0.0, 0.1),
        x.Done(1, FINISHED, b"", "", 0.0, float("nan")),
        x.Done(1, FINISHED, b"", "", 0.0, -1.0),
    ],
)
def test_an_executor_that_lies_is_cut_off_and_nothing_else_happens(done: x.Done) -> None:
    rig = NodeCore()
    rig.receive(reserve(1, app="pool"))
    rig.launches(1, ask=1)
    with pytest.raises(LinkError):
        rig.core.done("p0", done, 0.0)
    assert rig.core.user_of("p0", 1) is not None and rig.core.user_of("p0", 99) is None
    rig.settle()
    assert not rig.take(m.Report)
    rig.done("p0", 1)
    assert [report.status for report in rig.take(m.Report)] == [FINISHED]


def test_a_result_too_large_for_the_scheduler_fails_its_task() -> None:
    rig = NodeCore()
    rig.core.scheduler_down("s", 0.0)
    rig.core.scheduler_up("s", m.MESSAGE_OVERHEAD_BYTES + 10_000)
    rig.receive(reserve(1, app="pool"))
    rig.launches(1, ask=1)
    rig.core.done("p0", x.Done(1, FINISHED, bytes(10_001), "", 0.0, 0.1), 0.0)
    (report,) = rig.take(m.Report)
    assert report.status is TaskStatus.FAILED and report.result == b"" and "10001 bytes; at most 10000" in report.error
