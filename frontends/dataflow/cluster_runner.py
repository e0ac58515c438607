"""Runs a program's functions on the workers of a cluster: what `Dataflow` needs of that."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from frontends.dataflow.control_messages import LOCAL, PlaceOf, Progress, Shipped
from frontends.dataflow.driver import Driver, Plan
from frontends.dataflow.errors import InvalidProgram
from frontends.dataflow.handles import Dataset
from frontends.dataflow.kept_snapshots import KeptSnapshots
from frontends.dataflow.links_of import host_towards
from frontends.dataflow.progress_line import ProgressLine
from frontends.dataflow.shipping import Owner, pack_definition, pack_outline, pack_program, unpack_returned
from frontends.dataflow.slots import wait_for_slots
from frontends.dataflow.stages import Definition, Given
from frontends.dataflow.worker_core import layout_of
from sparrow_py import Client
from sparrow_py.wire.local_address import LOOPBACK
from sparrow_py.wire.resolution import resolved

if TYPE_CHECKING:
    from frontends.dataflow.timeline import Flow


class ClusterRunner:
    """Of one Dataflow. Workers start with the first run."""

    def __init__(
        self,
        cluster: Any,
        *,
        plane: str,
        workers: int,
        min_workers: int,
        start_timeout_s: float,
        lease_s: float | None,
        snapshot_dir: str | None,
        snapshot_every_s: float | None,
        transport: str,
        allow_plaintext: bool,
        advertise: str | None,
        progress: bool,
        flow: Flow | None = None,
    ) -> None:
        """`flow` takes what is recorded for a timeline."""
        self._client = cluster if isinstance(cluster, Client) else Client(cluster)
        self._owns_client = self._client is not cluster
        self._line = ProgressLine(sys.stderr) if progress else None
        access = self._client._connection.access
        self._plan = Plan(
            plane, workers, min_workers, start_timeout_s, lease_s, snapshot_every_s, transport,
            allow_plaintext or access.tls is None, advertise or self._host(), self._show,
        )  # fmt: skip
        if flow is not None:
            self._plan = replace(self._plan, spans_per_s=flow.spans_per_s, record=flow.record)
        self._snapshots = KeptSnapshots(snapshot_dir)
        self._driver: Driver | None = None
        self._is_interrupted = False
        """Ctrl-C has ended a run, and its workers are to be ended, too."""
        self._needed_from = 0
        """Runs before this one are gone: a snapshot has what came of them."""
        self._closed = threading.Event()
        self._definition = Definition()
        self._runs: list[Shipped] = []
        """Those that went well, and would be run again."""
        self._values: dict[PlaceOf, Any] = {}
        self._next_run = 0
        self.progress: Progress | None = None
        """What the controller said last."""

    def _host(self) -> str:
        """Where workers can dial this process: by the interface that leads to the schedulers."""
        connection = self._client._connection
        if connection.cluster is not None or connection.here is not None:
            return LOOPBACK
        sources = connection.sources
        first = resolved([sources] if isinstance(sources, str) else list(sources))[0]
        host, _, port = first.rpartition(":")
        return host_towards(("", "", host.strip("[]"), int(port)))

    def _show(self, progress: Progress) -> None:
        self.progress = progress
        if self._line is not None:
            self._line.show(progress)

    # ---- runs -------------------------------------------------------------------------------------

    def run(self, owner: Owner, definition: Definition, datasets: Sequence[Dataset], program: Callable[[], Any]) -> Any:
        """What the program returned; `value` has the values of datasets in it."""
        packed = pack_definition(definition), pack_program(program, owner)
        outline = b"" if self._plan.plane == LOCAL else pack_outline(definition)
        shipped = Shipped(self._next_run, layout_of(definition), *packed, outline)
        self._definition = definition
        self._end_interrupted()
        if self._driver is None:
            self._driver = self._started()
        self._next_run += 1
        try:
            returned, self._values = self._driver.run([*self._runs, shipped])
        except (KeyboardInterrupt, SystemExit):
            self._is_interrupted = True
            self._end_interrupted()
            raise
        finally:
            if self._line is not None:
                self._line.end()
        self._needed_from = max(self._needed_from, self._driver.needed_from)
        self._runs = [run for run in [*self._runs, shipped] if run.run >= self._needed_from]
        self._release(datasets)
        return unpack_returned(returned, datasets)

    def _started(self) -> Driver:
        if self._needed_from and not self._snapshots.reach(self._needed_from):
            raise InvalidProgram(
                "Dataflow", None, "", "this Dataflow was interrupted, and its snapshots are gone: make another"
            )
        plan, line = self._plan, self._line
        show = _nobody if line is None else line.wait
        try:
            slots = wait_for_slots(self._client, plan.min_workers, plan.start_timeout_s, self._closed.wait, show)
        finally:
            if line is not None:
                line.end()
        if slots < plan.workers and line is not None:
            print(
                f"dataflow: {plan.workers} workers are wanted, and the cluster has {slots} slots for them: it starts "
                "smaller",
                file=sys.stderr,
            )
        return Driver(self._client, plan, self._given, slots, self._snapshots.path)

    def _given(self, place: PlaceOf) -> Any:
        """What the program gave a partition."""
        source = self._definition.datasets[place[0]].source
        assert isinstance(source, Given)
        return source.values[place[1]]

    def _release(self, datasets: Sequence[Dataset]) -> None:
        """Forget what the program gave datasets that were made anew, unless a run needs it that may be run again."""
        definition = self._definition
        for number in definition.replaced:
            layouts = (run.layout.partitions for run in self._runs)
            if not any(number < len(partitions) and partitions[number] for partitions in layouts):
                definition.release(number)
                datasets[number]._spec = definition.datasets[number]

    def value(self, dataset: int) -> list[Any]:
        """The partitions of a dataset that the last run returned; of a replicated one its value."""
        return [self._values[dataset, index] for index in range(self._definition.datasets[dataset].partitions)]

    def _end_interrupted(self) -> None:
        """After Ctrl-C: end the workers. Another Ctrl-C may interrupt that, so the next run does what is left of it."""
        if self._is_interrupted:
            self._stop()
            self._is_interrupted = False

    def _stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._needed_from = max(self._needed_from, self._driver.needed_from)
            self._driver = None

    def close(self) -> None:
        """End all workers."""
        self._closed.set()
        self._stop()
        self._snapshots.remove()
        self._values = {}
        if self._owns_client:
            self._client.close()


def _nobody(text: str) -> None:
    """Is shown what is waited for."""
