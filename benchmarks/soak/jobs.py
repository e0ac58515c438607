"""The jobs of the soak, of all kinds, and what each of their tasks must answer.

The file of starts gets a line for each start of a Python or command task, written by the task itself: it knows better
than any daemon how often it was started.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.soak import functions
from frontends.command.tasks import command_job
from frontends.synthetic.tasks import noop_job, sleep_job
from sparrow_py import CallOptions, CallStage, JobSpec, ResultOf, Speculation, calls
from sparrow_py.job import new_job_id

LARGE_BYTES = 200_000
"""Of a result: it goes by reference."""
UPLOAD_BYTES = 1_200_000
"""Of an input: it is uploaded first."""
MEDIUM_BYTES = 50_000
"""Of a result that goes in messages."""
WAIT_FOR_NODES_S = 120.0
ON_PYTHON = ("runs == python",)
ON_COMMAND = ("runs == command",)


@dataclass(frozen=True)
class Offer:
    """A job to submit. expected: the value of each task, None where any will do. may_fail: whether tasks may fail.
    cancels: tasks that are cancelled after `cancel_after_s`, all of them if it is empty; None: nothing is."""

    kind: str
    spec: JobSpec
    expected: Sequence[Any] | None = None
    may_fail: bool = False
    speculate: Speculation | None = None
    cancels: tuple[int, ...] | None = None
    cancel_after_s: float = 0.0


class Jobs:
    """Draws jobs, from a seed."""

    def __init__(self, rng: random.Random, starts: str) -> None:
        self._rng = rng
        self._starts = starts
        self._input = rng.randbytes(UPLOAD_BYTES)

    def draw(self) -> Offer:
        """The next job."""
        kind = self._rng.choices([*KINDS], [weight for weight, _ in KINDS.values()])[0]
        offer = KINDS[kind][1](self)
        # With few nodes the only ones that can run a job may be away when it is submitted.
        offer.spec.wait_for_nodes_s = WAIT_FOR_NODES_S
        return replace(offer, kind=kind, spec=replace(offer.spec, name=kind, job_id=offer.spec.job_id or new_job_id()))

    def _durations_s(self, count: int, mean_s: float) -> list[float]:
        return [min(self._rng.expovariate(1 / mean_s), 5 * mean_s) for _ in range(count)]

    def _calls(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], **options: Any
    ) -> tuple[JobSpec, str]:
        """A job whose tasks record their starts, and its id."""
        job_id = new_job_id()
        payloads = [calls.encode_arguments((self._starts, job_id, *given), {}) for given in arguments]
        spec = CallOptions(where=ON_PYTHON, **options).job("", calls.encode_function(function), payloads)
        return replace(spec, job_id=job_id), job_id

    # ---- the kinds ---------------------------------------------------------------------------

    def sleep(self) -> Offer:
        """What clusters mostly do."""
        return Offer("", sleep_job(self._durations_s(self._rng.randint(5, 40), 0.06)))

    def noop(self) -> Offer:
        """Many tasks of no length, given ahead of time."""
        return Offer("", noop_job(self._rng.randint(50, 300), prefetch=16))

    def work(self) -> Offer:
        """Python functions."""
        durations_s = self._durations_s(self._rng.randint(2, 10), 0.03)
        spec, _ = self._calls(functions.work, list(enumerate(durations_s)))
        return Offer("", spec, range(len(durations_s)))

    def once(self) -> Offer:
        """Python functions that must not be started twice."""
        durations_s = self._durations_s(self._rng.randint(2, 10), 0.03)
        spec, _ = self._calls(functions.work, list(enumerate(durations_s)), max_attempts=1)
        return Offer("", spec, range(len(durations_s)))

    def fails(self) -> Offer:
        """Python functions that fail, and are started again if they do."""
        spec, _ = self._calls(functions.fail_sometimes, [(task, 0.2) for task in range(4)], retry_failed=True)
        return Offer("", spec, range(4), may_fail=True)

    def times_out(self) -> Offer:
        """One task of four does not end by itself; its worker is replaced."""
        durations_s = [0.01, 60.0, 0.01, 0.01]
        spec, _ = self._calls(functions.work, list(enumerate(durations_s)), task_timeout_s=0.5)
        return Offer("", spec, range(4), may_fail=True)

    def slow(self) -> Offer:
        """Tasks that are submitted again when they take too long."""
        durations_s = [self._rng.uniform(0.02, 0.04) for _ in range(8)]
        spec, _ = self._calls(functions.work, list(enumerate(durations_s)))
        speculate = Speculation(quantile=0.5, slowdown=3.0, copies_max=0.5, running_s_min=0.3)
        return Offer("", spec, range(8), speculate=speculate)

    def large_results(self) -> Offer:
        """Results that stay at their nodes until the client fetches them."""
        spec, _ = self._calls(functions.large_result, [(task, LARGE_BYTES) for task in range(3)])
        return Offer("", spec, [functions.pattern(task, LARGE_BYTES) for task in range(3)])

    def medium_results(self) -> Offer:
        """Results that go in messages, which node monitors remember for a while."""
        spec, _ = self._calls(functions.large_result, [(task, MEDIUM_BYTES) for task in range(3)])
        return Offer("", spec, [functions.pattern(task, MEDIUM_BYTES) for task in range(3)])

    def large_input(self) -> Offer:
        """An input that is uploaded once, and fetched by the nodes that need it."""
        common, payload = calls.encode_function(functions.digest), calls.encode_arguments((self._input,), {})
        spec = CallOptions(where=ON_PYTHON).job("", common, [payload] * 3)
        return Offer("", spec, [functions.digest(self._input)] * 3)

    def stages(self) -> Offer:
        """Three stages, with large results between the first two."""
        job_id = new_job_id()
        first = [(self._starts, job_id, task, LARGE_BYTES) for task in range(4)]
        named = [
            CallStage("make", functions.large_result, first),
            CallStage("digest", functions.digest_of_result, [(ResultOf("make", task),) for task in range(4)]),
            CallStage("join", functions.joined, [(ResultOf("digest"),)]),
        ]
        spec = replace(CallOptions(where=ON_PYTHON).stages_job("", named), job_id=job_id)
        digests = [functions.digest(functions.pattern(task, LARGE_BYTES)) for task in range(4)]
        return Offer("", spec, [None] * 4 + digests + [" ".join(digests)])

    def commands(self) -> Offer:
        """Commands."""
        job_id = new_job_id()
        script = 'echo "$1 $2" >> "$3"; sleep 0.03'
        argvs = [["sh", "-c", script, "sh", job_id, str(task), self._starts] for task in range(4)]
        return Offer("", replace(command_job(argvs, where=ON_COMMAND), job_id=job_id))

    def cancelled(self) -> Offer:
        """A job that is cancelled, whole or in part, whether it runs or not."""
        whole = self._rng.random() < 0.5
        chosen = () if whole else tuple(self._rng.sample(range(30), 15))
        return Offer("", sleep_job([0.3] * 30), cancels=chosen, cancel_after_s=self._rng.uniform(0.0, 0.3))


KINDS: dict[str, tuple[int, Callable[[Jobs], Offer]]] = {
    "sleep": (30, Jobs.sleep),
    "noop": (12, Jobs.noop),
    "work": (20, Jobs.work),
    "once": (8, Jobs.once),
    "fails": (4, Jobs.fails),
    "times out": (2, Jobs.times_out),
    "slow": (5, Jobs.slow),
    "large results": (6, Jobs.large_results),
    "medium results": (4, Jobs.medium_results),
    "large input": (4, Jobs.large_input),
    "stages": (6, Jobs.stages),
    "commands": (8, Jobs.commands),
    "cancelled": (5, Jobs.cancelled),
}
"""Kinds of jobs: how many of all, and how each is made."""
