"""Paper §3.1, Batch Sampling, on the real scheduler core. Probe sharing is off: the counts are exact."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction

import pytest

from scheduler.spreading import reservations_wanted, spread, spread_beside
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig


def reserved(nodes: int, tasks: int, probe_ratio: float, seed: int = 0) -> Counter[str]:
    """Reservations per node for one job; each node gets one message."""
    rig = SchedulerRig([f"n{number}" for number in range(nodes)], seed=seed, probe_sharing=False)
    rig.submit_job(tasks, probe_ratio=probe_ratio)
    sent = rig.outbox.take(m.Reserve)
    assert len({node for node, _ in sent}) == len(sent), "more than one message to a node"
    return Counter({node: message.count for node, message in sent})


def test_dm_candidate_slaves_are_selected() -> None:
    """ "The scheduler randomly selects a set of dm candidate slaves (d >= 1)": 2 tasks at d = 1.5 on 6 nodes."""
    for seed in range(50):
        assert sorted(reserved(6, 2, 1.5, seed).values()) == [1, 1, 1]


def test_more_probes_than_slaves_are_spread_evenly() -> None:
    """14 tasks at d = 2 on 6 nodes: 28 reservations, four or five on each."""
    for seed in range(50):
        counts = reserved(6, 14, 2.0, seed)
        assert sum(counts.values()) == 28
        assert sorted(counts.values()) == [4, 4, 5, 5, 5, 5]


@pytest.mark.parametrize("ratio", ["1", "1.1", "1.2", "1.3", "1.15", "1.7", "2", "2.3", "2.675", "3.7", "8.01", "1000"])
def test_a_fraction_of_a_probe_is_rounded_up_exactly(ratio: str) -> None:
    """ "d is a tunable parameter", any number from 1: ceil(dm), of d as it is written. 1.1 · 10 is 11, not 12."""
    for tasks in [*range(1, 300), 1000, 9_999, 10_000, 100_000]:
        assert reservations_wanted(float(ratio), tasks) == math.ceil(Fraction(ratio) * tasks), (ratio, tasks)
    assert reservations_wanted(1.1, 10) == 11


@pytest.mark.parametrize("chosen", [{"n3": 1}, {"n0": 1, "n5": 2}, {f"n{number}": 1 for number in range(6)}])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 6, 9, 40])
def test_probes_beside_those_of_idle_nodes_go_to_other_slaves_while_there_are_any(
    chosen: dict[str, int], count: int
) -> None:
    nodes = [f"n{number}" for number in range(6)]
    for seed in range(20):
        more = Counter(dict(spread_beside(chosen, nodes, count, random.Random(seed))))
        more.subtract(chosen)
        others = [more[node] for node in nodes if node not in chosen]
        assert sum(more.values()) == count and min(more.values()) >= 0
        if count <= len(others):
            assert max(others, default=0) <= 1 and sum(others) == count
        else:
            assert min(others, default=1) >= 1 and max(more.values()) - min(more.values()) <= 2


@pytest.mark.parametrize("more", [3, 9])
def test_slaves_beside_those_that_are_chosen_are_as_likely_as_each_other(more: int) -> None:
    """Chi-square with 17 degrees of freedom, p = 0.001."""
    nodes, rng, draws = [f"n{number}" for number in range(20)], random.Random(5), 6000
    chosen = {"n4": 1, "n11": 1}
    counts = Counter(
        node for _ in range(draws) for node, _ in spread_beside(chosen, nodes, more, rng) if node not in chosen
    )
    expected = draws * more / 18
    assert sum((counts[node] - expected) ** 2 / expected for node in nodes if node not in chosen) < 40.8


@pytest.mark.parametrize("count", [1, 3, 10, 19, 23, 47])
def test_the_set_is_uniform(count: int) -> None:
    """ "Randomly selects": each slave as likely as any other, and each pair. Chi-square, seeds fixed, at p = 0.001."""
    nodes = [f"n{number}" for number in range(20)]
    rng = random.Random(31)
    draws = 4000
    extra: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    each = count // 20
    for _ in range(draws):
        chosen = [node for node, number in spread(nodes, count, rng) if number > each]
        extra.update(chosen)
        pairs.update({(a, b) for a in chosen for b in chosen if a < b})
    # Without replacement the counts vary less than independent ones: scaled by (n - 1) / (n - r).
    r = count % 20
    expected = draws * r / 20
    statistic = sum((extra[node] - expected) ** 2 for node in nodes) / expected * 19 / (20 - r)
    assert statistic < 43.82  # Chi-square with 19 degrees of freedom.
    if r > 1:
        share = draws * r * (r - 1) / (20 * 19)
        all_pairs = [(a, b) for a in nodes for b in nodes if a < b]
        assert all(abs(pairs[pair] - share) < 5 * math.sqrt(share) for pair in all_pairs)


def test_what_one_job_drew_says_nothing_of_the_next() -> None:
    """Other seeds draw other nodes. That schedulers share no state is in test_3_1_no_shared_state.py."""
    first = [reserved(50, 1, 1.0, seed) for seed in range(200)]
    assert len({next(iter(counts)) for counts in first}) > 40


@pytest.mark.parametrize(("placement", "chosen"), [("per-task", [1, 3]), ("batch", [1, 2])])
def test_figure_1(placement: str, chosen: list[int]) -> None:
    """ "(a) Per-task sampling selects queues of length 1 and 3. (b) Batch sampling selects queues of length 1 and 2":
    two tasks, d = 2, and four sampled queues of 1, 2, 3 and 4, of which the first two are sampled for one task."""
    rig = SchedulerRig([f"n{node}" for node in range(100)], placement=placement)
    rig.submit_job(2, probe_ratio=2.0)
    sampled = rig.outbox.take(m.AskLength)
    assert len({node for node, _ in sampled}) == 4
    lengths = {}
    for length, (node, message) in enumerate(sorted(sampled, key=lambda pair: pair[1].probe), 1):
        lengths[node] = length
        rig.node(node, m.QueueLength(message.probe, length))
    assert sorted(lengths[node] for node, _ in rig.outbox.take(m.Launch)) == chosen
