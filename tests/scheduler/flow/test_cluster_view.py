"""What the network is told of machines: those that have changed by as much as costs distinguish."""

from __future__ import annotations

from scheduler.flow.cluster_view import LOAD_STEPS
from sparrow_py.wire import messages as m
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info


def told(rig: FlowRig, **load: float) -> list[dict[str, float]]:
    """What the network is told of the machine after the node has measured that."""
    rig.node("n1", m.NodeLoad(4, 4, 0, 0, {}, **load))
    _, machines = rig.plane._view.take_changes()
    return [dict(machine.load) for machine in machines]


def test_a_load_within_a_step_of_what_was_told_is_not_told_again() -> None:
    rig = FlowRig(["n1"])
    assert told(rig, cpu=1.04) == [{"cpu": 1.0}]
    for cpu in (1.0, 1.09, 0.91, 1.051, 0.949):
        assert told(rig, cpu=cpu) == []
    assert told(rig, cpu=1.26) == [{"cpu": 1.3}]
    assert told(rig, cpu=1.26, memory_bytes=10**9) == [{"cpu": 1.3, "memory_bytes": 15.0 * 2**26}]
    assert told(rig, cpu=1.31, memory_bytes=10**9 + 10**6) == []
    assert told(rig) == [{}]


def test_loads_that_go_up_slowly_are_told_step_by_step() -> None:
    rig = FlowRig(["n1"])
    traffic = [told(rig, net_in_bytes_per_s=1e5 * number) for number in range(50)]
    figures = [load[0]["net_in_bytes_per_s"] for load in traffic if load]
    assert figures == [1e6 * number for number in range(5)]
    assert set(LOAD_STEPS) <= set(m.NodeLoad.__struct_fields__)


def test_what_is_free_is_the_same_in_whatever_order_it_is_added_up() -> None:
    rig = FlowRig({"n1": node_info(4, resources={"gpu": 1.0})})
    free = []
    for demand in ((0.1, 0.2, 0.3), (0.3, 0.2, 0.1)):
        for number, amount in enumerate(demand):
            rig.submit_job(1, job=f"j{len(free)}{number}", demand={"gpu": amount})
        rig.plane._view.changed("n1")
        rig.plane._view.take_changes()
        free.append(rig.plane._view.machines["n1"].free)
        rig.end_all()
    assert free[0] == free[1] == {"gpu": 0.4}
