"""Tables as bytes: Arrow IPC files, in which each record batch is a bucket if the result is cut into buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frontends.sql.plan import BUCKET
from sparrow_py.errors import InvalidRequest


def encode_table(table: pa.Table, buckets: int = 1) -> bytes:
    """The file of this table; with several buckets a batch for each, by the column `BUCKET`, which is left out."""
    parts = [table] if buckets == 1 else _split_into_buckets(table, buckets)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, parts[0].schema) as writer:
        for part in parts:
            writer.write_batch(_one_batch(part))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _split_into_buckets(table: pa.Table, buckets: int) -> list[pa.Table]:
    bucket, rest = table.column(BUCKET), table.drop_columns([BUCKET])
    return [rest.filter(pc.equal(bucket, number)) for number in range(buckets)]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in table.schema], schema=table.schema)


def decode_tables(contents: Sequence[Any], bucket: int | None = None) -> pa.Table:
    """The rows of all these files, or of one bucket. The table refers to the contents, which may be mapped files."""
    batches: list[pa.RecordBatch] = []
    schema = None
    for content in contents:
        try:
            reader = pa.ipc.open_file(pa.py_buffer(content))
            schema = reader.schema
            numbers = range(reader.num_record_batches) if bucket is None else [bucket]
            batches += [reader.get_batch(number) for number in numbers]
        except (pa.ArrowException, IndexError) as error:
            raise InvalidRequest(
                "inputs", "", "", f"inputs: an input is not the result of an earlier stage ({error})"
            ) from None
    if schema is None:
        raise InvalidRequest("inputs", 0, "results of the stages before")
    return pa.Table.from_batches(batches, schema)
