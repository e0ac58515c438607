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

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontends.workflow.engines import installed
from frontends.workflow.ir.dag import Dag
from frontends.workflow.mapping.history import History
from frontends.workflow.running.answers import Answer, Explained
from frontends.workflow.running.driver import Observer
from frontends.workflow.running.nodes import Offer, offers
from frontends.workflow.running.options import RunOptions, allowed
from frontends.workflow.running.planning import choose, history_at
from frontends.workflow.running.run import Run, check_out
from frontends.workflow.sources import Source, source_of_file
from frontends.workflow.switches import Switches
from frontends.workflow.table_files import GivenTables, check_scans, given_tables
from sparrow_py.connection import connection_to

if TYPE_CHECKING:
    from sparrow_py import Client, LocalCluster
    from sparrow_py.auth import TLS

__all__ = ("WARM_OPTIONS", "Answer", "Explained", "RunOptions", "Workflow", "offered_engines")

WARM_OPTIONS = ("--warm", "workflow")
"""With these a node monitor starts the executor of workflows at once."""


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

    def _dag(self, given: GivenTables) -> Dag:
        dag = self.source.dag(given.schemas)
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
        sizes = {name: one.size for name, one in given.scanned_by(dag).items()}
        with ExitStack() as stack:
            if cluster is None:
                engines = {one.name: False for one in installed()}
            else:
                client, sources, access = _connected(stack, cluster, token, tls)
                engines = {name: offer.warm for name, offer in offers(client, sources, access, wanted.where).items()}
            history = _history(stack, wanted)
            switches = Switches.all_but(wanted.off)
            choice = choose(
                dag, sizes, allowed(engines, wanted.engines, switches.rules), switches,
                history=history, rates=wanted.rates, cpu_bias=wanted.cpu_bias,
            )  # fmt: skip
            return Explained(choice, sizes, switches)

    def run(
        self,
        cluster: str | Sequence[str] | LocalCluster | None = None,
        *,
        tables: Mapping[str, Any],
        out: Mapping[str, str | Path] | None = None,
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
        files = {name: Path(path) for name, path in out.items()} if out is not None else None
        check_out(dag, given, files)
        scanned = given.scanned_by(dag)
        with ExitStack() as stack:
            client, sources, access = _connected(stack, cluster, token, tls)
            offered = offers(client, sources, access, wanted.where)
            return Run(dag, scanned, wanted, client, offered, files, observers, _history(stack, wanted)).run()


def offered_engines(
    cluster: str | Sequence[str] | LocalCluster, token: str | None = None, tls: TLS | None = None
) -> dict[str, Offer]:
    """The engines that the nodes of a cluster have."""
    with ExitStack() as stack:
        client, sources, access = _connected(stack, cluster, token, tls)
        return offers(client, sources, access)


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
