"""One job of many points on which engines differ, and a table for it: for engines that need long for each job."""

from __future__ import annotations

import math

import pyarrow as pa

from frontends.workflow.ir.reading import read

NAN = math.nan
T = pa.table(
    {
        "n": pa.array([3, None, 1, 2, 2], pa.int32()),
        "x": pa.array([NAN, -1.5, None, 2.0, -0.0], pa.float64()),
        "s": pa.array(["a\\b", 'quo"te', "it's\n", None, "12\n"]).dictionary_encode(),
        "d": pa.array([0, 18292, None, 18293, -700_000], pa.date32()),
        "small": pa.array([1, 2, 255, None, 0], pa.uint8()),
        "wide": pa.array([1, 2, 3, None, 2**63 - 1], pa.uint64()),
        "unread": pa.array([1, 2, 3, 4, None], pa.timestamp("ns")),
    }
)
SCAN = "t = SCAN 't' (x DOUBLE, n INTEGER, s STRING, d DATE, small INTEGER, wide INTEGER)\n"
POINTS = (
    "SELECT t WHERE {x > 5}",  # NaN is no part of a file's statistics, and greatest.
    "SELECT t WHERE {x <> 2}",
    r"SELECT t WHERE {s LIKE 'a\b'}",
    "AGGREGATE t TO (most = MAX x, least = MIN x, sum = SUM x, n = AVG n, c = COUNT, k = COUNT DISTINCT x)",
    "AGGREGATE t BY (x) TO (n = SUM n, m = MIN n, a = AVG x, c = COUNT s)",
    "AGGREGATE none BY (s) TO (c = COUNT)",
    "AGGREGATE none TO (c = COUNT, n = SUM n, a = AVG n, d = COUNT DISTINCT s)",
    "JOIN INNER t, t ON (x = x) TO (n = LEFT n, m = RIGHT n, x = LEFT x, y = RIGHT x)",
    "JOIN LEFT t, v ON (n = n) TO (n = LEFT n, m = RIGHT n, x = RIGHT x)",
    "JOIN LEFT t, v ON (n = n) TO (n = LEFT n, x = RIGHT x)",
    "JOIN LEFT t, v ON (n = n, x = x) TO (n = LEFT n)",
    "JOIN SEMI t, v ON (n = n) TO (s = LEFT s)",
    "JOIN ANTI t, v ON (n = n) TO (n = LEFT n, s = LEFT s)",
    "CROSS JOIN t, v TO (n = LEFT n)",
    "SORT t BY (x DESC, n)",
    "SORT t BY (d)",
    "TOP 2 t BY (n DESC)",
    "UNION t, t",
    "INTERSECT t, t",
    "DIFFERENCE t, none",
    "DISTINCT t",
    "PROJECT t TO (r = {s || 'line\nbreak' || '\"\"\"' || '\\' || '${a}'}, c = {SUBSTRING(s, 2, 2)})",
    "PROJECT t TO (a = {0.06 + 0.01}, q = {n / 0}, m = {n % 0}, f = {7 / 2}, y = {x / (n - 2)}, z = {x % (n - 2)})",
    "PROJECT t TO (big = {CASE WHEN n > 1 THEN 2000000000 ELSE 0 END * 3}, i = {CAST(x AS BIGINT)})",
    "PROJECT t TO (i = {CAST(x * 1e300 AS BIGINT)}, j = {CAST(9223372036854775808.0 + x * 0 AS BIGINT)})",
    "PROJECT t TO (i = {CAST(s AS BIGINT)}, j = {CAST(s AS DOUBLE)}, k = {CAST(s AS DATE)}, t = {CAST(d AS VARCHAR)})",
    "PROJECT t TO (y = {EXTRACT(YEAR FROM d)}, m = {d + INTERVAL '1' MONTH}, e = {d + INTERVAL '10' DAY})",
    "PROJECT t TO (i = {x IN (0, 2.5, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)}, e = {n IS NOT DISTINCT FROM 2})",
    "VALUES (n INTEGER, s STRING) ROWS ()",
    "VALUES (n INTEGER, x DOUBLE) ROWS (({1}, {0.5}), ({CAST(NULL AS BIGINT)}, {-0.5}))",
)
ALL_POINTS = read(
    f"{SCAN}none = SELECT t WHERE {{n > 9}}\nv = SELECT t WHERE {{n > 1}}\n"
    + "".join(f"r{number} = {text}\n" for number, text in enumerate(POINTS))
    + f"RESULTS t, {', '.join(f'r{number}' for number in range(len(POINTS)))}\n"
)
