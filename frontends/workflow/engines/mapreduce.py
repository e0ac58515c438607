"""MapReduce on our own cluster, restricted on purpose: a job has one shuffle (thesis, §3.4.1).

A script submits a job of two stages to the app `python`: each mapper reads a share of the rows of every file,
does the operators before the shuffle, aggregates what it has where parts can be put together, and cuts what it made
into buckets by hashes of keys, as Arrow; each reducer does the rest on its bucket of all mappers. Within a task DuckDB
runs, in one thread. `merging` says which operators can be one job; with the rule `merge` off each operator is a job by
itself, with Parquet files between. With `share_scans` off each operator of a task is a pass by itself, whose rows are a
table (else a view, a part of the pass of its reader); with `infer_types` off what passes the shuffle is a table before
the pass that gives its rows their buckets. The rule `part_keys` says whether one shuffle may serve operators whose keys
differ (`shuffling`): with it off fewer operators are one job. The rule `map_joins` says whether mappers join by
themselves where one side is known to be small (`map_joins`): each reads that side whole, and its share of the other.

A script takes the cluster that the environment names (`SPARROW_SCHEDULER`), or brings its own. With
`WORKFLOW_IN_PROCESS` set its tasks run one after the other in its own process: to try a script without a cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from sqlglot import exp

from frontends.workflow.engines.base import ALL_RULES, Engine, Rules, beyond
from frontends.workflow.engines.duckdb import ENGINE as DUCKDB
from frontends.workflow.engines.mapreduce_combining import before_shuffle, combined, with_copies
from frontends.workflow.engines.mapreduce_whole import with_whole_sides
from frontends.workflow.engines.scripts import INDENT, THREADS, WRITE_TABLE, comment, script, string_text, tuple_text
from frontends.workflow.engines.sql import columns_text, in_block, name_text, python_text, sql_text
from frontends.workflow.engines.sql_scalars import identifier
from frontends.workflow.ir.dag import (
    BlackBox,
    CrossJoin,
    Dag,
    Input,
    Leaf,
    LoopResult,
    Operator,
    Scan,
    Sort,
    Udf,
    Values,
    While,
)
from frontends.workflow.jobs.classes import shuffle_keys
from frontends.workflow.jobs.map_joins import NONE_SMALL, side_name
from frontends.workflow.jobs.merging import done_by_mappers, unmergeable
from frontends.workflow.jobs.shuffling import Shuffle

TASKS = '''\
class Tasks:
    """Relations of one task, in DuckDB."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(config={"threads": 1})

    def __enter__(self) -> "Tasks":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def view(self, name: str, query: str) -> None:
        self.connection.execute(f"CREATE TEMP VIEW {name} AS {query}")

    def table(self, name: str, query: str) -> None:
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {query}")

    def arrow(self, name: str, rows: pa.Table, columns: dict[str, str]) -> None:
        """A table of the columns ({name: type}) of these rows."""
        self.connection.register("rows of arrow", rows)
        listed = ", ".join(f"CAST({column} AS {type_}) AS {column}" for column, type_ in columns.items())
        self.table(name, f'SELECT {listed} FROM "rows of arrow"')
        self.connection.unregister("rows of arrow")

    def scan(self, name: str, path: str, columns: dict[str, str], split: int, splits: int) -> None:
        """This mapper's share of a file."""
        with pq.ParquetFile(path) as file:
            wanted = [name[1:-1].replace('""', '"') if name.startswith('"') else name for name in columns]
            self.arrow(name, share(file, wanted, split, splits), columns)

    def rows(self, query: str) -> pa.Table:
        return self.connection.sql(query).to_arrow_table()

    def buckets(self, name: str, keys: tuple[str, ...], number: int) -> list[pa.Table]:
        """The relation, in one pass, cut by the hash of the keys, in whatever order these are; all in the first without
        keys."""
        if number == 1 or not keys:
            whole = self.rows(f"SELECT * FROM {name}")
            return [whole, *[whole.slice(0, 0)] * (number - 1)]
        hashed = "xor(hash({}), {})".format
        bucket = functools.reduce(lambda text, key: hashed(key, text), keys, "0::UBIGINT")
        keyed = self.rows(f'SELECT *, {bucket} % {number} AS "bucket of the row" FROM {name}')
        last = keyed.num_columns - 1
        rows, place = keyed.remove_column(last), keyed.column(last)
        return [rows.filter(pc.equal(place, pa.scalar(one, place.type))) for one in range(number)]
'''
SHARE = '''\
def share(file: pq.ParquetFile, columns: list[str], split: int, splits: int) -> pa.Table:
    """One of so many shares of a file: row groups, or, if these are too few, rows of those that have them."""
    number = file.num_row_groups
    if number >= splits:
        return file.read_row_groups(list(range(split, number, splits)), columns=columns)
    first, last = (file.metadata.num_rows * part // splits for part in (split, split + 1))
    groups, before, begin = [], 0, 0
    for group in range(number):
        end = begin + file.metadata.row_group(group).num_rows
        if end <= first:
            before = end
        elif begin < last:
            groups.append(group)
        begin = end
    return file.read_row_groups(groups, columns=columns).slice(first - before, last - first)
'''
STAGES = '''\
def two_stages(
    mapper: Callable[..., Any], reducer: Callable[..., Any], inputs: dict[str, str], reducers: int, mapped: bool
) -> list:
    """What the mappers made, if that is wanted (`mapped`), and what the reducers made of it, as one job."""
    if os.environ.get("WORKFLOW_IN_PROCESS"):
        made = [mapper(inputs, split, THREADS, reducers) for split in range(THREADS)]
        return [made, [reducer(bucket, made) for bucket in range(reducers)]]
    stages = [
        CallStage("map", mapper, [(inputs, split, THREADS, reducers) for split in range(THREADS)]),
        CallStage("reduce", reducer, [(bucket, ResultOf("map")) for bucket in range(reducers)]),
    ]
    with Client() as client:
        job = client.submit_stages(stages, name="mapreduce")
        reduced = [future.result() for future in job.stage("reduce")]
        return [[fetched(client, future.result()) for future in job.stage("map")] if mapped else [], reduced]


def fetched(client: Client, made: Any) -> Any:
    """What a mapper made: if that is large, its node has it, and the client a reference."""
    return pickle.loads(client.fetch(made)) if isinstance(made, BlobRef) else made
'''


class MapReduce(Engine):
    """MapReduce on a cluster of ours."""

    name = "mapreduce"
    packages = ("duckdb",)
    unheeded: ClassVar[Mapping[str, str]] = {"idioms": Engine.unheeded["idioms"]}
    modules: ClassVar[tuple[str, ...]] = ("sparrow_py",)

    def inexpressible(self, job: Dag) -> str | None:
        return self.refused(job, ALL_RULES)

    def refused(self, job: Dag, rules: Rules, small: Collection[str] = NONE_SMALL) -> str | None:
        beyond_it = beyond(self.name, job, without=(While, LoopResult, Udf, BlackBox))
        return beyond_it or unmergeable(job, part_keys=rules.part_keys, small=_heeded(small, rules))

    def unmergeable(
        self, dag: Dag, names: Sequence[str], rules: Rules = ALL_RULES, small: Collection[str] = NONE_SMALL
    ) -> str | None:
        return unmergeable(dag, names, part_keys=rules.part_keys, small=_heeded(small, rules))

    def read_whole(self, job: Dag, rules: Rules, small: Collection[str]) -> dict[str, str]:
        joins = done_by_mappers(job, part_keys=rules.part_keys, small=_heeded(small, rules))
        return {name: side_name(job.operator(name), side) for name, side in joins.items()}

    def script(self, job: Dag, rules: Rules) -> str:
        return self.script_of_sizes(job, rules, NONE_SMALL)

    def script_of_sizes(self, job: Dag, rules: Rules, small: Collection[str]) -> str:
        steps = [job] if rules.merge else list(_single_operators(job))
        phases = [_Phases(step, rules, _heeded(small, rules)) for step in steps]
        body = [
            'with tempfile.TemporaryDirectory(prefix="workflow-mapreduce-") as directory:',
            f"{INDENT}files = dict(inputs)",
        ]
        definitions = [THREADS, WRITE_TABLE, SHARE, TASKS, STAGES]
        for number, one in enumerate(phases, 1):
            suffix = f"_{number}" if len(phases) > 1 else ""
            definitions += [one.mapper(suffix), one.reducer(suffix)]
            body += in_block(one.step(suffix, job.results))
        return script(
            self.name,
            job,
            body,
            standard=("functools", "os", "pickle", "tempfile"),
            imports=(
                "from collections.abc import Callable",
                "from typing import Any",
                "",
                "import duckdb",
                "import pyarrow as pa",
                "import pyarrow.compute as pc",
                "import pyarrow.parquet as pq",
                "",
                "from sparrow_py import BlobRef, CallStage, Client, ResultOf",
            ),
            definitions=definitions,
        )


def _heeded(small: Collection[str], rules: Rules) -> Collection[str]:
    return small if rules.map_joins else NONE_SMALL


def _single_operators(job: Dag) -> Iterable[Dag]:
    for operator in job.operators:
        if not isinstance(operator, Leaf) or operator.name in job.results:
            yield job.subset([operator.name])


class _Phases:
    """One job of two stages: which operators are before the shuffle, and what passes it by which keys."""

    def __init__(self, step: Dag, rules: Rules, small: Collection[str]) -> None:
        joins = done_by_mappers(step, part_keys=rules.part_keys, small=small)
        sides = with_whole_sides(step, joins)
        self._whole = sides.original
        in_steps, mapped = combined(sides.job, joins)
        self._rules = rules
        self._shuffle = Shuffle(in_steps.operators, rules.part_keys, mapped)
        self._step = with_copies(in_steps, self._shuffle, before_shuffle(in_steps.operators, mapped))
        self._mapped = before_shuffle(self._step.operators, mapped)
        self._before = [one for one in self._step.operators if one.name in self._mapped]
        self._after = [one for one in self._step.operators if one.name not in self._mapped]
        self._keys = self._shuffled()

    def _shuffled(self) -> dict[str, tuple[str, ...]]:
        """{relation that passes the shuffle: its key}."""
        found: dict[str, tuple[str, ...]] = {}
        for operator in self._after:
            own = self._shuffle.keys(operator)
            keys = own or tuple(source.schema.names[:1] for source in operator.sources)
            for source, key in zip(operator.sources, keys, strict=True):
                if source.name in self._mapped and (source.name not in found or own):
                    found[source.name] = key
        return found

    @property
    def _one_reducer(self) -> bool:
        """Whether all rows meet: for an order, a cross join, or keys of no columns."""
        return any(isinstance(one, Sort | CrossJoin) or () in shuffle_keys(one) for one in self._after)

    # ---- the functions -----------------------------------------------------------------------

    def mapper(self, suffix: str) -> str:
        lines: list[str] = []
        for operator in self._before:
            lines += [comment(operator), *self._before_shuffle(operator)]
        kept = [name for name in self._step.results if name in self._mapped]
        rows = ", ".join(f"{string_text(name)}: task.rows({python_text(_whole(name))})" for name in kept)
        buckets = ", ".join(
            f"{string_text(name)}: task.buckets({name_text(name, DUCKDB.dialect)}, {_keys_text(keys)}, reducers)"
            for name, keys in self._keys.items()
        )
        lines += [f"buckets = {{{buckets}}}", f"return buckets, {{{rows}}}"]
        head = f"def map_rows{suffix}(inputs: dict[str, str], split: int, splits: int, reducers: int) -> tuple:"
        text = f'"""{self._files_read()}: buckets of what is shuffled, and results."""'
        return "\n".join([head, f"{INDENT}{text}", f"{INDENT}with Tasks() as task:", *in_block(in_block(lines))])

    def _files_read(self) -> str:
        whole = sum(one.name in self._whole for one in self._step.leaves)
        shared = f"A share of the rows of {len(self._step.leaves) - whole} files"
        return f"{shared}, and {whole} whole" if whole else shared

    def reducer(self, suffix: str) -> str:
        lines: list[str] = []
        for name in self._keys:
            columns = columns_text(self._step.operator(name).schema, DUCKDB.dialect)
            lines += [
                f"rows = pa.concat_tables([buckets[{string_text(name)}][bucket] for buckets, _ in mapped])",
                f"task.arrow({name_text(name, DUCKDB.dialect)}, rows, {columns})",
            ]
        for operator in self._after:
            lines += [comment(operator), self._stored(operator)]
        results = ", ".join(
            f"{string_text(name)}: task.rows({python_text(self._ordered(name))})"
            for name in self._step.results
            if name not in self._mapped
        )
        lines.append(f"return {{{results}}}")
        head = f"def reduce_rows{suffix}(bucket: int, mapped: list) -> dict[str, pa.Table]:"
        text = '"""What one bucket of all mappers becomes."""'
        return "\n".join([head, f"{INDENT}{text}", f"{INDENT}with Tasks() as task:", *in_block(in_block(lines))])

    def step(self, suffix: str, results: Iterable[str]) -> list[str]:
        """The lines that run the job and write its results: to the outputs, or to files between jobs."""
        reducers = "1" if self._one_reducer or not self._after else "THREADS"
        mapped = any(name in self._mapped for name in self._step.results)
        functions = f"map_rows{suffix}, reduce_rows{suffix}"
        lines = [f"mapped, reduced = two_stages({functions}, files, {reducers}, mapped={mapped})"]
        for name in self._step.results:
            key = string_text(name)
            parts = (
                f"[rows[{key}] for _, rows in mapped]" if name in self._mapped else f"[rows[{key}] for rows in reduced]"
            )
            path = (
                f"outputs[{key}]" if name in results else f"os.path.join(directory, {string_text(f'{suffix}.parquet')})"
            )
            lines += [f"files[{key}] = {path}", f"write(pa.concat_tables({parts}), files[{key}])"]
        return lines

    # ---- statements --------------------------------------------------------------------------

    def _before_shuffle(self, operator: Operator) -> list[str]:
        name = name_text(operator.name, DUCKDB.dialect)
        if isinstance(operator, Scan | Input):
            columns = columns_text(operator.schema, DUCKDB.dialect)
            whole = operator.name in self._whole
            file = string_text(self._whole.get(operator.name, operator.name))
            return [f"task.scan({name}, inputs[{file}], {columns}, {'0, 1' if whole else 'split, splits'})"]
        if isinstance(operator, Values):
            query = DUCKDB.queries.query(operator, [])
            made = exp.Select(expressions=[exp.Star()]).from_(exp.Subquery(this=query, alias="listed"))
            text = python_text(sql_text(made, DUCKDB.dialect))
            once = "" if operator.name in self._whole else " + ('' if split == 0 else ' LIMIT 0')"
            return [f"task.table({name}, {text}{once})"]
        return [self._stored(operator)]

    def _stored(self, operator: Operator) -> str:
        consumers = len(self._step.consumers(operator.name)) + (operator.name in self._step.results)
        keyed = self._rules.infer_types or operator.name not in self._keys
        kind = "view" if self._rules.share_scans and consumers == 1 and keyed else "table"
        query = DUCKDB.queries.query(operator, list(operator.inputs))
        text = python_text(sql_text(query, DUCKDB.dialect))
        return f"task.{kind}({name_text(operator.name, DUCKDB.dialect)}, {text})"

    def _ordered(self, name: str) -> str:
        operator = self._step.operator(name)
        if isinstance(operator, Sort):
            return sql_text(DUCKDB.queries.ordered(name, operator.keys), DUCKDB.dialect)
        return _whole(name)


def _whole(name: str) -> str:
    return sql_text(DUCKDB.queries.whole(name), DUCKDB.dialect)


def _keys_text(keys: Iterable[str]) -> str:
    return tuple_text(identifier(key).sql(DUCKDB.dialect) for key in keys)


ENGINE = MapReduce()
