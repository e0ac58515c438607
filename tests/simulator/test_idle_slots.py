"""Slot time spent asking (§4.3), counted exactly."""

import pytest

from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.figures import catalogue, closed_forms, idle_slots
from simulator.figures.measures import measures
from simulator.network import Delay
from simulator.policies import Settings
from simulator.simulate import simulate

WORKLOAD = Synthetic(tasks=10, jobs=100, load=0.8, durations=Durations("constant"))


def asking_over_service(rtt_ms: float, settings: Settings) -> float:
    cluster = Cluster(nodes=50, delay=Delay(one_way_ms=rtt_ms / 2))
    result = simulate(cluster, WORKLOAD, idle_slots.WATCHED, settings)
    return float(measures(result)["asking_over_service"])


@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("rtt_ms", [1.0, 10.0])
def test_without_cancellation_it_is_d_rtt_over_t(ratio: float, rtt_ms: float) -> None:
    settings = catalogue.paper(probe_ratio=ratio)
    expected = closed_forms.idle_while_asking(ratio, rtt_ms, 100.0)
    assert asking_over_service(rtt_ms, settings) == pytest.approx(expected, rel=1e-6)


def test_cancellation_makes_it_less_but_each_task_is_asked_for_once() -> None:
    found = asking_over_service(1.0, catalogue.paper(cancellation=True))
    assert closed_forms.idle_while_asking(1, 1.0, 100.0) <= found < closed_forms.idle_while_asking(2, 1.0, 100.0)


def test_being_watched_changes_nothing() -> None:
    watched, plain = (simulate(Cluster(nodes=50), WORKLOAD, policy) for policy in (idle_slots.WATCHED, "sparrow"))
    counts = {name: count for name, count in watched.counts.items() if name != "asking_us"}
    assert (list(watched.wait_ms), counts) == (list(plain.wait_ms), plain.counts)
