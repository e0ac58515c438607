"""Functions that scripts for pandas define where they need them.

Columns are of pandas's nullable types, with the option `future.distinguish_nan_and_na`; a DATE is the days since
1970-01-01, an Int64. pandas differs from docs/workflow-semantics.md where NaN is compared, in `%`, and in casts.
"""

from __future__ import annotations

FUNCTIONS: dict[str, str] = {
    "read": '''\
def read(path: str, schema: pa.Schema) -> pd.DataFrame:
    """These columns of a file, in pandas's types with nulls; days as numbers of days since 1970-01-01."""
    table = pq.read_table(path, columns=schema.names).select(schema.names).cast(schema)
    days = [pa.field(one.name, pa.int32() if one.type == pa.date32() else one.type) for one in schema]
    numbers = [pa.field(one.name, pa.int64() if one.type == pa.int32() else one.type) for one in days]
    return table.cast(pa.schema(days)).cast(pa.schema(numbers)).to_pandas(types_mapper=TYPES.get)
''',
    "write": '''\
def write(frame: pd.DataFrame, path: str, schema: pa.Schema) -> None:
    """Beside the path, then renamed: the file is there whole or not at all. Dictionaries of numbers cost too much."""
    arrays = [pa.array(frame[one.name].astype(TYPES.get(one.type, "Int64")), from_pandas=False) for one in schema]
    days = [one.cast(pa.int32()) if field.type == pa.date32() else one for one, field in zip(arrays, schema)]
    table = pa.table([one.cast(field.type) for one, field in zip(days, schema)], schema)
    texts = [field.name for field in schema if not pa.types.is_primitive(field.type)]
    pq.write_table(table, f"{path}.partial", use_dictionary=texts)
    os.replace(f"{path}.partial", path)
''',
    "constant": '''\
def constant(frame: pd.DataFrame, value: object, dtype: str) -> pd.Series:
    """The value in each row."""
    return pd.Series(pd.array([value], dtype=dtype).take(np.zeros(len(frame), dtype="int64")), index=frame.index)
''',
    "equal": '''\
def equal(a: pd.Series, b: pd.Series) -> pd.Series:
    """Of doubles: NaN equals itself."""
    return (a == b) | (np.isnan(a) & np.isnan(b))
''',
    "less": '''\
def less(a: pd.Series, b: pd.Series) -> pd.Series:
    """Of doubles: NaN is the greatest."""
    return (a < b) | (np.isnan(b) & ~np.isnan(a))
''',
    "same": '''\
def same(equal: pd.Series, a: pd.Series, b: pd.Series) -> pd.Series:
    """IS NOT DISTINCT FROM: nulls are the same."""
    return equal.fillna(False) | (a.isna() & b.isna())
''',
    "among": """\
def among(a: pd.Series, values: list) -> pd.Series:
    return a.isin(values).astype("boolean").mask(a.isna())
""",
    "remainder": '''\
def remainder(a: pd.Series, b: pd.Series) -> pd.Series:
    """With the sign of `a`, which `%` does not have; null where `b` is 0."""
    with np.errstate(all="ignore"):
        return np.fmod(a, b).mask((b == 0).fillna(True))
''',
    "case": '''\
def case(otherwise: pd.Series, *branches: tuple[pd.Series, pd.Series]) -> pd.Series:
    """The value beside the first test that is true."""
    for test, value in reversed(branches):
        otherwise = value.where(test.fillna(False).astype("bool"), otherwise)
    return otherwise
''',
    "coalesce": """\
def coalesce(first: pd.Series, *others: pd.Series) -> pd.Series:
    for other in others:
        first = first.where(first.notna(), other)
    return first
""",
    "whole": '''\
def whole(a: pd.Series) -> pd.Series:
    """Towards zero; null for what is no INTEGER."""
    values = a.to_numpy("float64", na_value=np.nan)
    there = np.isfinite(values) & (values >= -(2.0**63)) & (values < 2.0**63)
    return pd.Series(pd.arrays.IntegerArray(np.where(there, values, 0).astype("int64"), ~there), index=a.index)
''',
    "parsed": '''\
def parsed(text: pd.Series, pattern: str, convert: Callable[[str], object], dtype: str) -> pd.Series:
    """Null where the text is not of the pattern, or not of the type."""

    def value(one: object) -> object:
        if one is pd.NA or not re.fullmatch(pattern, one):
            return None
        try:
            found = convert(one)
        except ValueError:
            return None
        return found if dtype == "Float64" or -(2**63) <= found < 2**63 else None

    return pd.Series(pd.array([value(one) for one in text], dtype=dtype), index=text.index)
''',
    "days_of": '''\
def days_of(text: str) -> int:
    """Days since 1970-01-01."""
    return datetime.date.fromisoformat(text).toordinal() - 719163
''',
    "calendar": '''\
def calendar(days: pd.Series) -> np.ndarray:
    """As days of NumPy's calendar; any for nulls."""
    return days.to_numpy("int64", na_value=0).astype("datetime64[D]")
''',
    "numbers": '''\
def numbers(values: np.ndarray, like: pd.Series) -> pd.Series:
    """With the nulls of another column."""
    return pd.Series(pd.arrays.IntegerArray(values.astype("int64"), like.isna().to_numpy()), index=like.index)
''',
    "months_later": '''\
def months_later(days: pd.Series, months: int) -> pd.Series:
    """A day that the month lacks becomes its last."""
    day = calendar(days)
    month = day.astype("datetime64[M]")
    moved = (month + months).astype("datetime64[D]") + (day - month.astype("datetime64[D]"))
    return numbers(np.minimum(moved, (month + months + 1).astype("datetime64[D]") - 1), days)
''',
    "year": """\
def year(days: pd.Series) -> pd.Series:
    return numbers(calendar(days).astype("datetime64[Y]").astype("int64") + 1970, days)
""",
    "month": """\
def month(days: pd.Series) -> pd.Series:
    return numbers(calendar(days).astype("datetime64[M]").astype("int64") % 12 + 1, days)
""",
    "day": """\
def day(days: pd.Series) -> pd.Series:
    dates = calendar(days)
    return numbers((dates - dates.astype("datetime64[M]").astype("datetime64[D]")).astype("int64") + 1, days)
""",
    "date_text": """\
def date_text(days: pd.Series) -> pd.Series:
    texts = pd.Series(np.datetime_as_string(calendar(days)).astype(object), index=days.index, dtype="string")
    return texts.mask(days.isna())
""",
    "order": '''\
def order(a: pd.Series) -> pd.Series:
    """Whole numbers that are ordered as doubles are, NaN as the greatest, which pandas's own does not regard."""
    values = a.to_numpy("float64", na_value=0.0)
    bits = np.where(np.isnan(values), np.nan, values).view("int64")
    return pd.Series(pd.arrays.IntegerArray(bits ^ ((bits >> 63) & (2**63 - 1)), a.isna().to_numpy()), index=a.index)
''',
    "double_of": '''\
def double_of(ordered: pd.Series) -> pd.Series:
    """What `order` made these numbers of."""
    bits = ordered.to_numpy("int64", na_value=0)
    values = (bits ^ ((bits >> 63) & (2**63 - 1))).view("float64")
    return pd.Series(pd.arrays.FloatingArray(values, ordered.isna().to_numpy()), index=ordered.index)
''',
    "reduced": '''\
def reduced(column: pd.Series, function: Callable[[np.ndarray], float]) -> float | None:
    """Of the values that are no nulls; None if there are none."""
    values = column.dropna().to_numpy("float64")
    return function(values) if len(values) else None
''',
    "one_row": '''\
def one_row(columns: dict[str, tuple[object, str]]) -> pd.DataFrame:
    """{column: (value, type)}."""
    return pd.DataFrame({name: pd.array([value], dtype=dtype) for name, (value, dtype) in columns.items()})
''',
}
NEEDED: dict[str, tuple[str, ...]] = {
    "months_later": ("calendar", "numbers"),
    "year": ("calendar", "numbers"),
    "month": ("calendar", "numbers"),
    "day": ("calendar", "numbers"),
    "date_text": ("calendar",),
}
"""Functions that a function calls."""

TYPES = """\
TYPES = {
    pa.int64(): pd.Int64Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(na_value=pd.NA),
}
"""
