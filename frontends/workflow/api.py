"""Workflows from Python.

from frontends.workflow.api import Workflow

answer = Workflow.from_hive("SELECT town, MAX(price) AS price FROM sales GROUP BY town AS dearest").run(
    tables={"sales": "sales.parquet"}
)
answer.table                 # Arrow
answer.to_pandas()
print(answer.text())         # which jobs ran on which engines, and for how long
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from frontends.workflow import explaining
from frontends.workflow import store as stores
from frontends.workflow.calibration import Calibration
from frontends.workflow.cluster_runner import ClusterRunner, JobEnd, JobSettings
from frontends.workflow.costs import JobRun as PastRun
from frontends.workflow.engines import engine as engine_of
from frontends.workflow.engines import engines as all_engines
from frontends.workflow.engines import installed
from frontends.workflow.errors import EngineMissing
from frontends.workflow.execute import JobRun, Observer, execute
from frontends.workflow.execution import Execution, FailedJob, Job
from frontends.workflow.history import History
from frontends.workflow.ir import Dag, Leaf
from frontends.workflow.job_graph import JobGraph
from frontends.workflow.nodes import Offer, offers
from frontends.workflow.partition import Plan, single_engine_plans
from frontends.workflow.planning import Choice, CostPlanner, choose, history_at, planner_of, unmeasured
from frontends.workflow.reading import read
from frontends.workflow.running_errors import NoEngines
from frontends.workflow.sizes import TableSize, relation_sizes
from frontends.workflow.sources import Source, source_of_file
from frontends.workflow.switches import Switches
from frontends.workflow.table_files import GivenTable, check_scans, given_tables
from frontends.workflow.user_files import history_path
from sparrow_py.connection import connection_to
from sparrow_py.errors import InvalidRequest

if TYPE_CHECKING:
    from sparrow_py import Client, LocalCluster
    from sparrow_py.auth import TLS

WARM_OPTIONS = ("--warm", "workflow")
"""With these a node monitor starts the executor of workflows at once."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a workflow is planned and run.

    engines: names of those that may be used; () for all. off: names of rules to switch off (`switches.NAMES`).
    store: the directory between jobs, which all nodes must see. store_bytes_max: of one run. resume: go on with an
    interrupted run. threads: of each job, which demands as many CPUs; None for all of a node. memory_bytes_max: of each
    job's process; 0 for no limit. where: further predicates over nodes. cpu_bias: from 0 to 1, how far CPU seconds
    count in the place of seconds. history: the file; None for none. rates: instead of the calibration file's.
    """

    engines: Sequence[str] = ()
    off: Sequence[str] = ()
    store: str | Path | None = None
    store_bytes_max: int | None = None
    resume: bool = False
    threads: int | None = None
    memory_bytes_max: int = 0
    where: Sequence[str] = ()
    task_timeout_s: float | None = None
    cpu_bias: float = 0.0
    history: str | Path | None = field(default_factory=history_path)
    rates: Calibration | None = None

    def check(self) -> None:
        """`InvalidRequest` or `UnknownEngine` for what cannot be."""
        for name in self.engines:
            engine_of(name)
        Switches.all_but(self.off)
        if self.threads is not None and self.threads < 1:
            raise InvalidRequest("threads", self.threads, "a whole number from 1")
        if self.memory_bytes_max < 0:
            raise InvalidRequest("memory_bytes_max", self.memory_bytes_max, "a whole number from 0")
        if self.store_bytes_max is not None and self.store_bytes_max < 1:
            raise InvalidRequest("store_bytes_max", self.store_bytes_max, "a whole number from 1")


@dataclass(frozen=True)
class Answer:
    """What a workflow has made. tables: its results by name; files: instead of them where files were asked for.

    dag: what ran, with rewrites; jobs: what ran where; failures: jobs that failed and then went elsewhere. seconds:
    from the tables to the results, without the start of a cluster; plan_s: of these until the first plan was there.
    """

    tables: Mapping[str, pa.Table]
    files: Mapping[str, Path]
    dag: Dag
    jobs: tuple[JobRun, ...]
    failures: tuple[FailedJob, ...]
    plan: Plan | None
    seconds: float
    plan_s: float

    def __getitem__(self, name: str) -> pa.Table:
        return self.tables[name]

    @property
    def table(self) -> pa.Table:
        """The only result; `InvalidRequest` if there are several."""
        if len(self.tables) != 1:
            raise InvalidRequest("table", None, "", f"the workflow has the results {', '.join(self.tables)}; name one")
        return next(iter(self.tables.values()))

    def to_pandas(self, name: str | None = None) -> Any:
        """A result, or the only one, as a data frame."""
        return (self.table if name is None else self.tables[name]).to_pandas()

    def text(self) -> str:
        """The jobs that ran, and their times."""
        return explaining.run_text(self.jobs, self.failures, self.seconds)

    def dot(self) -> str:
        """The workflow as it ran, as DOT."""
        return explaining.plan_dot(self.dag, self._groups())

    def html(self, title: str = "workflow") -> str:
        """The same as a page."""
        return explaining.plan_html(title, self.text(), self.dag, self._groups())

    def _groups(self) -> list[tuple[str, frozenset[str]]]:
        return [(f"job {one.job.number}: {one.job.engine}", one.job.names) for one in self.jobs]


@dataclass(frozen=True)
class Explained:
    """A plan that was not run."""

    choice: Choice
    tables: Mapping[str, TableSize]
    switches: Switches

    @property
    def plan(self) -> Plan:
        return self.choice.plan

    def text(self) -> str:
        """Jobs, costs, bounds and runners-up."""
        planner, plan = self.choice.planner, self.plan
        engines = planner.costed_engines()
        sizes = relation_sizes(plan.dag, self.tables, planner.history_sizes)
        singles = single_engine_plans(JobGraph(plan.dag), engines, sizes, planner.cpu_bias)
        return explaining.plan_text(
            plan,
            self.tables,
            planner.history_sizes,
            unmeasured(planner, planner.engines),
            {name: one.cost for name, one in singles.items()},
        )

    def code(self) -> list[tuple[str, str]]:
        """Of each job a title and its script."""
        return [
            (
                f"job {number} on {job.engine}",
                engine_of(job.engine).generate(self.plan.job_dag(job), self.switches.rules),
            )
            for number, job in enumerate(self.plan.jobs, 1)
        ]

    def dot(self) -> str:
        """The plan as DOT."""
        return explaining.plan_dot(self.plan.dag, self._groups())

    def html(self, title: str = "workflow") -> str:
        """The plan as a page."""
        return explaining.plan_html(title, self.text(), self.plan.dag, self._groups())

    def _groups(self) -> list[tuple[str, frozenset[str]]]:
        return [(f"job {number}: {job.engine}", job.operators) for number, job in enumerate(self.plan.jobs, 1)]


class Workflow:
    """A workflow in one of the languages; what it means follows from the tables that it is run on."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @classmethod
    def from_hive(cls, text: str, file: str = "<hive>", *, strict: bool = False) -> Workflow:
        """HiveQL. strict: without the forms of the thesis's listings."""
        return cls(Source("hive", text, file, strict))

    @classmethod
    def from_beer(cls, text: str, file: str = "<beer>") -> Workflow:
        return cls(Source("beer", text, file))

    @classmethod
    def from_gas(cls, text: str, file: str = "<gas>") -> Workflow:
        return cls(Source("gas", text, file))

    @classmethod
    def from_lindi(cls, text: str, file: str = "<lindi>") -> Workflow:
        """A Python program with a function `workflow(lindi)`, which runs here."""
        return cls(Source("lindi", text, file))

    @classmethod
    def from_ir(cls, text: str, file: str = "<ir>") -> Workflow:
        """The intermediate representation as text."""
        return cls(Source("ir", text, file))

    @classmethod
    def from_file(cls, path: str | Path, language: str | None = None, *, strict: bool = False) -> Workflow:
        """A file; its suffix says the language, unless it is stated."""
        return cls(source_of_file(path, language, strict=strict))

    def dag(self, tables: Mapping[str, Any]) -> Dag:
        """The workflow over these tables, as it is written."""
        return self._dag(given_tables(tables))

    def _dag(self, given: Mapping[str, GivenTable]) -> Dag:
        dag = self.source.dag({name: one.schema for name, one in given.items()})
        check_scans(dag, given)
        return dag

    def explain(
        self,
        cluster: str | Sequence[str] | LocalCluster | None = None,
        *,
        tables: Mapping[str, Any],
        token: str | None = None,
        tls: TLS | None = None,
        **options: Any,
    ) -> Explained:
        """The plan, with the engines of the cluster's nodes, or without one with those that are installed here."""
        wanted = RunOptions(**options)
        wanted.check()
        given = given_tables(tables)
        dag = self._dag(given)
        sizes = {name: one.size for name, one in given.items()}
        with ExitStack() as stack:
            if cluster is None:
                engines = {one.name: False for one in installed()}
            else:
                client, sources, access = _connected(stack, cluster, token, tls)
                engines = {name: offer.warm for name, offer in offers(client, sources, access).items()}
            history = _history(stack, wanted)
            switches = Switches.all_but(wanted.off)
            choice = choose(
                dag, sizes, _allowed(engines, wanted.engines), switches,
                history=history, rates=wanted.rates, cpu_bias=wanted.cpu_bias,
            )  # fmt: skip
            return Explained(choice, sizes, switches)

    def run(
        self,
        cluster: str | Sequence[str] | LocalCluster | None = None,
        *,
        tables: Mapping[str, Any],
        out: Mapping[str, Path] | None = None,
        observers: Sequence[Observer] = (),
        token: str | None = None,
        tls: TLS | None = None,
        **options: Any,
    ) -> Answer:
        """Run the workflow on a cluster (addresses of schedulers, or a `LocalCluster`), or without one on this machine.

        tables: {name: path of a Parquet or CSV file, Arrow table or pandas data frame}. out: {result: Parquet file} to
        write instead of giving tables. options: those of `RunOptions`. `WorkflowFailed` if a job fails on all engines.
        """
        wanted = RunOptions(**options)
        wanted.check()
        given = given_tables(tables)
        dag = self._dag(given)
        _check_out(dag, out)
        with ExitStack() as stack:
            client, sources, access = _connected(stack, cluster, token, tls)
            offered = offers(client, sources, access)
            return _Run(dag, given, wanted, client, offered, out, observers, _history(stack, wanted)).run()


def offered_engines(
    cluster: str | Sequence[str] | LocalCluster, token: str | None = None, tls: TLS | None = None
) -> dict[str, Offer]:
    """The engines that the nodes of a cluster have."""
    with ExitStack() as stack:
        client, sources, access = _connected(stack, cluster, token, tls)
        return offers(client, sources, access)


class _Run:
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
        self._engines = _allowed({name: offer.warm for name, offer in offered.items()}, options.engines)
        self._threads = {
            name: min(offer.cpus, options.threads or offer.cpus)
            for name, offer in offered.items()
            if name in self._engines
        }
        self._out, self._observers, self._history = out, observers, history
        self._switches = Switches.all_but(options.off)
        self._sizes = {name: one.size for name, one in given.items()}
        self._started_s = time.perf_counter()

    def run(self) -> Answer:
        with self._store() as (store, execution, plan):
            plan_s = time.perf_counter() - self._started_s
            runner = ClusterRunner(
                self._client,
                store,
                {name: one.file_in(store.directory) for name, one in self._given.items()},
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
        if options.resume:
            store = stores.resumed_run(directory, mark, most)
            execution, plan = self._resumed(store), None
        else:
            choice = choose(
                self._dag, self._sizes, self._engines, self._switches,
                history=self._history, rates=options.rates, cpu_bias=options.cpu_bias,
            )  # fmt: skip
            store = stores.new_run(directory, mark, choice.dag, most)
            execution, plan = Execution(choice.dag, choice.planner), choice.plan
        try:
            yield store, execution, plan
        except BaseException:
            store.close(delete=not store.manifest.done)
            raise
        store.close(delete=True)

    def _resumed(self, store: stores.RunStore) -> Execution:
        dag = read(store.manifest.dag, "<manifest>")
        rates = self._options.rates or Calibration()
        planner = planner_of(dag, self._sizes, self._engines, rates, self._history, self._options.cpu_bias)
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
            self.history.add_sizes(self.dag, made)
            sizes = relation_sizes(job.dag, self.tables, self.known)
            read_bytes = sum(sizes[one.name].bytes.likely for one in job.dag.operators if isinstance(one, Leaf))
            names = [one.name for one in job.dag.operators if one.name in job.names]
            self.history.add_run(self.dag, names, job.engine, PastRun(end.seconds, end.cpu_s, read_bytes))


def _connected(
    stack: ExitStack, cluster: str | Sequence[str] | LocalCluster | None, token: str | None, tls: TLS | None
) -> tuple[Client, list[str], Any]:
    """A client, the addresses of schedulers, and how these are reached; a cluster of our own if none is given."""
    from sparrow_py import Client, LocalCluster

    if cluster is None:
        cluster = stack.enter_context(LocalCluster(node_options=WARM_OPTIONS, forward_output=False))
    addresses = cluster if isinstance(cluster, str | list | tuple) else cluster.addresses  # type: ignore[union-attr]
    client = stack.enter_context(Client(cluster, token=token, tls=tls))
    sources = [addresses] if isinstance(addresses, str) else list(addresses)
    return client, sources, connection_to(cluster, token, tls).access


def _history(stack: ExitStack, options: RunOptions) -> History | None:
    return None if options.history is None else stack.enter_context(history_at(Path(options.history)))


def _allowed(engines: Mapping[str, bool], wanted: Sequence[str]) -> dict[str, bool]:
    """Those of the engines that are wanted and for which we write scripts; `NoEngines` if there are none."""
    known = all_engines()
    found = {name: warm for name, warm in engines.items() if name in known and (not wanted or name in wanted)}
    missing = [name for name in wanted if name not in engines]
    if missing or not found:
        one = engine_of(missing[0]) if missing else None
        install = f": {EngineMissing(one.name, one.packages, one.extra)}" if one is not None else ""
        raise NoEngines(f"no node has the engine {', '.join(missing) or 'of any workflow'}{install}")
    return found


def _check_out(dag: Dag, out: Mapping[str, Path] | None) -> None:
    if out is not None and set(out) != set(dag.results):
        raise InvalidRequest("out", ", ".join(out), f"a file for each result: {', '.join(dag.results)}")


def _handed_over(
    results: Mapping[str, Path], out: Mapping[str, Path] | None
) -> tuple[dict[str, pa.Table], dict[str, Path]]:
    """The results as tables, or as files where they were asked for."""
    if out is None:
        return {name: pq.read_table(path, memory_map=False) for name, path in results.items()}, {}
    for name, path in results.items():
        beside = out[name].with_name(f"{out[name].name}.partial")
        shutil.copyfile(path, beside)
        beside.replace(out[name])
    return {}, dict(out)
