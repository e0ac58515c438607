"""One run of a workflow on a cluster: its plan, its store, its jobs, what is learned of them."""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from frontends.workflow.ir.dag import Dag, Scan
from frontends.workflow.ir.reading import read
from frontends.workflow.mapping import calibration
from frontends.workflow.mapping.costs import JobRun as PastRun
from frontends.workflow.mapping.history import History
from frontends.workflow.mapping.partition import Plan
from frontends.workflow.mapping.sizes import TableSize, read_bytes
from frontends.workflow.running import store as stores
from frontends.workflow.running.answers import Answer
from frontends.workflow.running.cluster_runner import ClusterRunner, JobEnd, JobSettings
from frontends.workflow.running.driver import Observer, execute
from frontends.workflow.running.errors import StoreUnusable, WorkflowFailed
from frontends.workflow.running.execution import Execution, FailedJob, Job
from frontends.workflow.running.nodes import Offer
from frontends.workflow.running.options import RunOptions, allowed
from frontends.workflow.running.planning import CostPlanner, choose, planner_of
from frontends.workflow.switches import Switches
from frontends.workflow.table_files import CSV_SUFFIXES, GivenTable, GivenTables
from frontends.workflow.user_files import calibration_path
from sparrow_py.errors import InvalidOption, InvalidRequest

if TYPE_CHECKING:
    from sparrow_py import Client

log = logging.getLogger("sparrow.workflow")


class Run:
    """One run of a workflow."""

    def __init__(
        self,
        dag: Dag,
        given: Mapping[str, GivenTable],
        options: RunOptions,
        client: Client,
        offered: Mapping[str, Offer],
        out: Mapping[str, Path] | None,
        observers: Sequence[Observer],
        history: History | None,
    ) -> None:
        self._dag, self._given, self._options, self._client = dag, given, options, client
        self._switches = Switches.all_but(options.off)
        self._engines = allowed(
            {name: offer.warm for name, offer in offered.items()}, options.engines, self._switches.rules
        )
        most = max((offer.cpus for name, offer in offered.items() if name in self._engines), default=1)
        if options.threads is not None and options.threads > most:
            raise InvalidRequest("threads", options.threads, f"at most {most}, the CPUs of the largest node")
        self._threads = {
            name: min(offer.cpus, options.threads or offer.cpus)
            for name, offer in offered.items()
            if name in self._engines
        }
        self._out, self._observers, self._history = out, observers, history
        self._sizes = {name: one.size for name, one in given.items()}
        self._started_s = time.perf_counter()

    def run(self) -> Answer:
        with self._store() as (store, execution, plan):
            plan_s = time.perf_counter() - self._started_s
            with stores.as_unusable(store.directory):
                scanned = {scan.table for scan in execution.dag.of_type(Scan)}
                files_of = {name: self._given[name].file_in(store.directory) for name in scanned}
            runner = ClusterRunner(
                self._client,
                store,
                files_of,
                self._switches.rules,
                JobSettings(
                    self._threads,
                    self._options.memory_bytes_max,
                    tuple(self._options.where),
                    self._options.task_timeout_s,
                ),
            )
            planner = execution.planner
            assert isinstance(planner, CostPlanner)
            learning = _Learning(execution.dag, planner, self._sizes, self._history)
            jobs = execute(execution, runner, store, [learning, *self._observers])
            results = {name: store.path(name) for name in execution.dag.results}
            tables, files = _handed_over(results, self._out)
            seconds = time.perf_counter() - self._started_s
            return Answer(tables, files, execution.dag, tuple(jobs), execution.failures, plan, seconds, plan_s)

    @contextmanager
    def _store(self) -> Iterator[tuple[stores.RunStore, Execution, Plan | None]]:
        """The store, and what is to be done; what is made stays there only if the run fails."""
        options = self._options
        directory = Path(options.store) if options.store is not None else stores.default_directory()
        most = options.store_bytes_max if options.store_bytes_max is not None else stores.bytes_max()
        mark = stores.fingerprint(self._dag, {name: one.mark for name, one in self._given.items()})
        plan: Plan | None = None
        if options.resume:
            store = stores.resumed_run(directory, mark, most)
        else:
            choice = choose(
                self._dag, self._sizes, self._engines, self._switches,
                history=self._history, rates=options.rates, cpu_bias=options.cpu_bias,
            )  # fmt: skip
            store, plan = stores.new_run(directory, mark, choice.dag, most), choice.plan
        try:
            execution = self._resumed(store) if options.resume else Execution(choice.dag, choice.planner)
            yield store, execution, plan
        except BaseException as error:
            if isinstance(error, WorkflowFailed):
                error.resumable = bool(store.manifest.done)
            store.close(delete=not store.manifest.done)
            raise
        store.close(delete=True)

    def _resumed(self, store: stores.RunStore) -> Execution:
        dag = read(store.manifest.dag, "<manifest>")
        rates = self._options.rates or calibration.load(calibration_path())
        planner = planner_of(
            dag, self._sizes, self._engines, rates, self._history, self._options.cpu_bias, self._switches.rules
        )
        known = {name: one.size for name, one in store.manifest.relations.items()}
        return Execution(dag, planner, known=known, done=set(store.manifest.done))


@dataclass
class _Learning:
    """Notes which engines are warm, and in the history what jobs made and took."""

    dag: Dag
    planner: CostPlanner
    tables: Mapping[str, TableSize]
    history: History | None
    known: dict[str, TableSize] = field(default_factory=dict)

    def started(self, job: Job) -> None:
        """Nothing is known yet."""

    def failed(self, failed: FailedJob) -> None:
        """A failure says nothing of sizes or times."""

    def finished(self, job: Job, end: JobEnd) -> None:
        """Sizes and times are known."""
        self.planner.started(job.engine)
        made = {name: one.size for name, one in end.made.items()}
        self.known.update(made)
        if self.history is not None:
            try:
                self._note(self.history, job, end, made)
            except InvalidOption as error:  # What was computed is worth more than what is learned of it.
                log.warning("sparrow: nothing more is learned of this run: %s", error)
                self.history = None

    def _note(self, history: History, job: Job, end: JobEnd, made: Mapping[str, TableSize]) -> None:
        history.add_sizes(self.dag, made)
        bytes_in = read_bytes(job.dag, self.tables, self.known)
        names = [one.name for one in job.dag.operators if one.name in job.names]
        history.add_run(self.dag, names, job.engine, PastRun(end.seconds, end.cpu_s, bytes_in))


def check_out(dag: Dag, given: GivenTables, out: Mapping[str, Path] | None) -> None:
    """`InvalidRequest` unless there is a file for each result, which is no table's file and is not called CSV."""
    if out is None:
        return
    if set(out) != set(dag.results):
        raise InvalidRequest("out", ", ".join(out), f"a file for each result: {', '.join(dag.results)}")
    for path in out.values():
        if path.suffix.lower() in CSV_SUFFIXES:
            raise InvalidRequest("out", str(path), "a Parquet file, whose name does not end as that of a CSV file")
        table = next((name for name, file in given.opened_paths.items() if _same_file(file, path)), None)
        if table is not None:
            raise InvalidRequest("out", str(path), f"a file other than that of the table {table}")


def _same_file(one: Path, other: Path) -> bool:
    """Whether both are there, and are one file, by whatever names."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def _handed_over(
    results: Mapping[str, Path], out: Mapping[str, Path] | None
) -> tuple[dict[str, pa.Table], dict[str, Path]]:
    """The results as tables, or as files where they were asked for."""
    if out is None:
        return {name: _table(path) for name, path in results.items()}, {}
    for name, path in results.items():
        _copy(path, out[name])
    return {}, dict(out)


def _table(path: Path) -> pa.Table:
    try:
        return pq.read_table(path, memory_map=False)
    except (OSError, pa.ArrowException) as error:
        raise StoreUnusable(str(path), f"the result cannot be read: {error}") from None


def _copy(path: Path, to: Path) -> None:
    """Beside the file, then renamed; `InvalidRequest` if it cannot be written."""
    beside = to.with_name(f"{to.name}.partial")
    try:
        shutil.copyfile(path, beside)
        beside.replace(to)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        allowed = f"a file that can be written ({error.strerror or error})"
        raise InvalidRequest("out", str(to), allowed) from None
