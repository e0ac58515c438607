"""The joblib backend: batches of calls as tasks of the app `python`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

from sparrow_py.call_jobs import CallOptions, checked_options
from sparrow_py.calls import APP
from sparrow_py.client import CallsWithOptions, Client
from sparrow_py.cluster_nodes import ready_slots
from sparrow_py.errors import InvalidRequest, NoScheduler
from sparrow_py.joblib.batches import Batches, Callback
from sparrow_py.joblib.large_arguments import LargeArguments, run_batch
from sparrow_py.joblib.waiting import wait_without_slot
from sparrow_py.kept_clients import client_for
from sparrow_py.task_context import in_task

if TYPE_CHECKING:
    from sparrow_py.cluster import LocalCluster

SLOTS_TIMEOUT_S = 10.0
"""How long a cluster without a slot for Python calls may take to get one."""
LARGE_BYTES = 1 << 20
"""From so many bytes on an array is large, where joblib does not say (`max_nbytes`)."""
SLOTS_OF_TASK = 16
"""What a call within a task takes for the slots of the cluster, which only programs can ask for."""
SLOTS_FRESH_S = 1.0
"""The number of slots is asked for so often at most."""
_OWN = ("client", "cluster", "addresses", "options")
"""The parameters of the backend."""


class SparrowBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib publishes no types
    """Runs what `joblib.Parallel` is given on a Sparrow cluster.

    Parameters
    ----------
    client: whose tasks these are. Or
    cluster: the `LocalCluster`, or
    addresses: the schedulers, for which a client is made and kept. Without any: those that SPARROW_SCHEDULER names, or
        else an embedded cluster of this machine's cores, which lasts until the program ends (`close_clients`).
    options: how the tasks are run; default: the client's.

    `n_jobs` is how many batches are in flight if the cluster has more slots; else as many are as `pre_dispatch` of
    `Parallel` says, so that no slot waits for the program. None and -1 mean all slots. With 1 the program runs the
    calls itself.

    In a task, calls to this backend are tasks of the task's own client (`Client.current`), and the task gives its slot
    back while it waits for them; where tasks have no clients they run in the task itself. All slots are taken to be
    `SLOTS_OF_TASK` there. Calls of `Parallel` that name no backend run in threads in a task, or one after the other if
    they are nested deeper, as under joblib's own backends.

    Raises `InvalidRequest` for parameters that cannot be, what `Client` raises if there is no cluster, and
    `NoScheduler` if the cluster has had no slot for Python calls for `SLOTS_TIMEOUT_S`.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self,
        client: Client | None = None,
        cluster: LocalCluster | None = None,
        addresses: str | Sequence[str] | None = None,
        options: CallOptions | None = None,
        *,
        nesting_level: int | None = None,
    ) -> None:
        super().__init__(nesting_level=nesting_level)
        self._options = None if options is None else checked_options(options)
        self._ways = (client, cluster, addresses)
        self._lock = threading.Lock()
        self._batches: Batches | None = None
        self._calls = 0
        """Calls of `Parallel` that go on. All under one `parallel_config` have the same backend."""
        self._in_flight_max = 1
        self._bytes_min: int | None = LARGE_BYTES
        self._read_only = True
        self._slots_known = 0
        self._slots_until_s = float("-inf")

    def __reduce__(self) -> tuple[Any, ...]:
        """What of it travels with a task: there the client is the task's own."""
        return type(self), ()

    # ---- how many ----------------------------------------------------------------------------

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many batches may run at a time: `n_jobs`, and for negative ones what that leaves of all slots."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs == 1:
            return 1
        client = client_for(*self._ways)
        if client is None:
            return 1
        if n_jobs is None or n_jobs < 0:
            return max(self._slots(client) + 1 + (-1 if n_jobs is None else n_jobs), 1)
        return n_jobs

    def _slots(self, client: Client) -> int:
        """The slots for Python calls of the nodes that are ready, once there are any. A task is not told how many."""
        if in_task() and client is not self._ways[0]:
            return SLOTS_OF_TASK
        if time.monotonic() >= self._slots_until_s:
            self._slots_known = ready_slots(client.nodes(), APP) or _awaited_slots(client)
            self._slots_until_s = time.monotonic() + SLOTS_FRESH_S
        return self._slots_known

    # ---- a call of Parallel ------------------------------------------------------------------

    def configure(
        self,
        n_jobs: int | None = 1,
        parallel: Any = None,
        max_nbytes: int | None = LARGE_BYTES,
        mmap_mode: str | None = "r",
        **others: Any,
    ) -> int:
        """joblib asks for the number of workers before a call, or before several of a `with` block."""
        for name in others.keys() & set(_OWN):  # The rest is of other backends: joblib gives every one the same.
            raise InvalidRequest(name, others[name], "nothing here: parallel_config(backend='sparrow', …) takes it")
        effective = self.effective_n_jobs(n_jobs)
        if effective == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        wait_without_slot(parallel)
        client = client_for(*self._ways)
        assert client is not None, "effective_n_jobs is 1 where there is no client"
        self._in_flight_max = effective if effective < self._slots(client) else sys.maxsize
        self._bytes_min, self._read_only = max_nbytes, mmap_mode == "r"
        return effective

    def start_call(self) -> None:
        """joblib begins a call."""
        client = client_for(*self._ways)
        assert client is not None, "configure has found one"
        with self._lock:
            self._calls += 1
            if self._batches is None:
                large = LargeArguments(self._bytes_min, put=client.put)
                self._batches = Batches(lambda batch: self._sent(client, large, batch), _given_up, self._in_flight_max)

    def _sent(self, client: Client, large: LargeArguments, batch: Any) -> Future[Any]:
        """The future of a batch."""
        options = self._options or client.options
        pickled, arrays = large.encode(batch)
        # Batches in quick succession travel as one job.
        with_options = CallsWithOptions(client, options)
        if not arrays:
            return with_options.submit(run_batch, pickled)
        return with_options.submit(run_batch, pickled, arrays, read_only=self._read_only)

    def submit(self, func: Any, callback: Callback | None = None) -> Any:
        """joblib hands over a batch of calls. `callback` is told of its future once that is done."""
        batches = self._batches
        if batches is not None:  # Else the call has been given up meanwhile.
            batches.submit(func, callback or (lambda _: None))
        return func

    def retrieve_result_callback(self, out: Future[list[Any]]) -> list[Any]:
        """The results of a batch whose future is done; raises its exception."""
        return out.result()

    def stop_call(self) -> None:
        """joblib's call has ended."""
        with self._lock:
            self._calls -= 1
            if not self._calls and self._batches is not None:
                self._batches.close()
                self._batches = None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """joblib gives up what is left of the call: after an error, or an interrupt, or if nobody wants its results."""
        batches = self._batches
        if batches is not None:
            batches.stop_given_up()

    def terminate(self) -> None:
        """joblib needs the backend no more, for now. Workers are the cluster's."""
        self.reset_batch_stats()


def _given_up(callback: Callback) -> bool:
    """Whether the call of `Parallel` that a batch's callback belongs to has been given up: others may go on."""
    return bool(getattr(getattr(callback, "parallel", None), "_aborting", False))


def _awaited_slots(client: Client) -> int:
    """The slots for Python calls of a cluster that has none yet; `NoScheduler` if it gets none in time."""
    try:
        client.wait_for_nodes(1, SLOTS_TIMEOUT_S)
        if slots := ready_slots(client.nodes(), APP):
            return slots
        why = f"no node runs the app {APP!r}"
    except TimeoutError as error:
        why = str(error)
    raise NoScheduler(f"the backend sparrow of joblib: the cluster has no slot for Python calls: {why}")
