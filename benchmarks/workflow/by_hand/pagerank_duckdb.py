"""PageRank (examples/workflow/pagerank.gas), five iterations, by hand in DuckDB."""

import os

import duckdb

THREADS = int(os.environ.get("WORKFLOW_THREADS") or os.cpu_count() or 1)
ITERATIONS = 5
LINKS = """
CREATE TABLE links AS
SELECT src, dst, 1.0::DOUBLE / degree AS share
FROM read_parquet('{edges}') AS edges JOIN (
    SELECT src, COUNT(*) AS degree FROM read_parquet('{edges}') GROUP BY src
) AS degrees USING (src)
"""
ITERATION = """
CREATE TABLE ranks{after} AS
SELECT dst AS id, 0.15::DOUBLE + 0.85::DOUBLE * SUM(value * share) AS value
FROM links JOIN ranks{before} ON src = id
GROUP BY dst
"""


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.execute(LINKS.format(**inputs))
        connection.execute(f"CREATE VIEW ranks0 AS SELECT id, value FROM read_parquet('{inputs['vertices']}')")
        for number in range(ITERATIONS):
            connection.execute(ITERATION.format(before=number, after=number + 1))
        connection.execute(f"COPY ranks{ITERATIONS} TO '{outputs['result']}' (FORMAT parquet)")
