"""Arrow tables and the five types: of which types columns are, and tables with the columns that a workflow declares."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

from frontends.workflow.errors import TableMismatch
from frontends.workflow.ir.types import Column, Schema, Type

ARROW_TYPES: dict[Type, pa.DataType] = {
    Type.INTEGER: pa.int64(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.BOOLEAN: pa.bool_(),
    Type.DATE: pa.date32(),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """How tables of these columns are between engines."""
    return pa.schema([(column.name, ARROW_TYPES[column.type]) for column in schema])


def type_of_field(arrow_type: pa.DataType) -> Type | None:
    """Which of the five types a column of this Arrow type is: decimals are DOUBLE; None if it is none of them."""
    if kinds.is_dictionary(arrow_type):
        return type_of_field(arrow_type.value_type)
    if kinds.is_integer(arrow_type):
        return Type.INTEGER
    if kinds.is_floating(arrow_type) or kinds.is_decimal(arrow_type):
        return Type.DOUBLE
    if kinds.is_string(arrow_type) or kinds.is_large_string(arrow_type) or kinds.is_string_view(arrow_type):
        return Type.STRING
    if kinds.is_boolean(arrow_type):
        return Type.BOOLEAN
    return Type.DATE if kinds.is_date(arrow_type) else None


def schema_of(arrow: pa.Schema, table: str) -> Schema:
    """The columns of a table, which `TableMismatch` names if one is of none of the five types."""
    columns = []
    for field in arrow:
        type_ = type_of_field(field.type)
        if type_ is None:
            raise TableMismatch(
                table, f"column {field.name} is {field.type}; {', '.join(one.value for one in Type)} are allowed"
            )
        columns.append(Column(field.name, type_))
    return Schema(tuple(columns))


def conformed(arrow_table: pa.Table, schema: Schema, table: str) -> pa.Table:
    """These columns of the table, of the Arrow types that workflows use.

    A whole number may stand for a DOUBLE. `TableMismatch` if a column is not there, is there twice, has another type,
    or holds what its type does not: a whole number of more than 64 bits.
    """
    return pa.table([_conformed_column(arrow_table, column, table) for column in schema], schema=arrow_schema(schema))


def _conformed_column(arrow_table: pa.Table, column: Column, table: str) -> pa.ChunkedArray:
    places = arrow_table.schema.get_all_field_indices(column.name)
    if len(places) != 1:
        found = ", ".join(arrow_table.column_names[:20])
        raise TableMismatch(table, f"{len(places)} columns are called {column.name}; it has {found}")
    values = arrow_table.column(places[0])
    type_ = type_of_field(values.type)
    if type_ is not column.type and not (type_ is Type.INTEGER and column.type is Type.DOUBLE):
        raise TableMismatch(
            table, f"column {column.name} is {values.type}, and the workflow declares {column.type.value}"
        )
    try:
        return values.cast(ARROW_TYPES[column.type])
    except pa.ArrowInvalid as error:
        raise TableMismatch(table, f"column {column.name}: {error}") from None
