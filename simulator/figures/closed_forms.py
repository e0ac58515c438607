"""What the Sparrow paper computes (§4): the probability that a job waits for nothing, and what late binding costs.

Words: `load` is ρ, `tasks` is m, `probe_ratio` is d, `cores` is c. All functions are exact up to rounding, for jobs of
any size: sums of binomial terms are taken over their logarithms, so nothing overflows.
"""

from __future__ import annotations

import math

from scheduler.spreading import reservations_wanted


def random_placement(load: float, tasks: int, cores: int = 1) -> float:
    """Each task on a random machine: (1 − ρ^c)^m (table 2; §4.2.1 for c > 1)."""
    return float((1 - load**cores) ** tasks)


def random_placement_with_queues(load: float, tasks: int, cores: int = 1) -> float:
    """As `random_placement`, with each machine a queue of its own with c servers (M/M/c), not c independent cores.

    Erlang's delay formula gives the share of time in which such a machine has no free core; for one core it is ρ.
    """
    blocked = erlang_b(cores, cores * load)
    return float((1 - blocked / (1 - load * (1 - blocked))) ** tasks)


def per_task_sampling(load: float, tasks: int, probe_ratio: int = 2, cores: int = 1) -> float:
    """Each task on the better of d random machines: (1 − ρ^(c·d))^m (table 2; §4.2.1 for c > 1)."""
    return float((1 - load ** (cores * probe_ratio)) ** tasks)


def batch_sampling(load: float, tasks: int, probe_ratio: float = 2, cores: int = 1) -> float:
    """The m tasks on the best of d·m random machines (table 2; §4.2.1 for c > 1).

    That is the probability that at least m of the d·m machines have a free core. The paper prints the sum from i = 0,
    which is 1 whatever the load; it starts at i = m.
    """
    return at_least(tasks, reservations_wanted(probe_ratio, tasks), 1 - load**cores)


def batch_sampling_of_full_machines(load: float, tasks: int, probe_ratio: float = 2, cores: int = 1) -> float:
    """As `batch_sampling`, with the share of machines that have no free core from `full_machines`, not ρ^c."""
    return at_least(tasks, reservations_wanted(probe_ratio, tasks), 1 - full_machines(load, cores))


def full_machines(load: float, cores: int) -> float:
    """The share of machines without a free core if tasks go to machines with any free core, all alike.

    §4.2.1 takes cores to be idle independently of each other, which makes this ρ^c. They are not: a machine with one
    free core is given a task as often as one with four, and stays full until one of its c tasks ends. A machine that
    takes tasks at rate a while it has a free core, and none while it is full, is Erlang's loss system: it is full for
    B(c, a) of the time, and its c cores do a·(1 − B(c, a)) = c·ρ at a time. The solution of that in a gives B. For one
    core it is ρ, as in the paper; it holds while hardly any task waits.
    """
    low, high = 0.0, 1.0
    while high * (1 - erlang_b(cores, high)) < cores * load:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if middle * (1 - erlang_b(cores, middle)) < cores * load:
            low = middle
        else:
            high = middle
    return erlang_b(cores, high)


def erlang_b(servers: int, offered: float) -> float:
    """Erlang's loss formula: the probability that all servers are busy when `offered` tasks come per service time."""
    blocked = 1.0
    for server in range(1, servers + 1):
        blocked = offered * blocked / (server + offered * blocked)
    return blocked


def at_least(wanted: int, trials: int, probability: float) -> float:
    """The probability of `wanted` or more successes in so many independent trials."""
    if wanted <= 0:
        return 1.0
    if wanted > trials or probability <= 0:
        return 0.0
    if probability >= 1:
        return 1.0
    yes, no = math.log(probability), math.log1p(-probability)
    terms = (
        math.exp(_log_choose(trials, successes) + successes * yes + (trials - successes) * no)
        for successes in range(wanted, trials + 1)
    )
    return min(1.0, math.fsum(terms))


def _log_choose(all_: int, some: int) -> float:
    return math.lgamma(all_ + 1) - math.lgamma(some + 1) - math.lgamma(all_ - some + 1)


def idle_while_asking(probe_ratio: float, rtt_ms: float, service_ms: float) -> float:
    """The share of its time that a slot waits for answers to getTask: d·RTT/t (§4.3).

    It counts a round trip for each of the d reservations of a task, so it is an upper bound where reservations that
    nobody can use are cancelled, and relative to the time that slots are in use.
    """
    return probe_ratio * rtt_ms / service_ms
