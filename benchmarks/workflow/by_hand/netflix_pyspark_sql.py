"""Movie recommendations (examples/workflow/netflix.hql) in Spark's own SQL."""

import os

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

THREADS = int(os.environ.get("WORKFLOW_THREADS") or os.cpu_count() or 1)
PREFERENCES = """
CACHE TABLE preferences AS
SELECT ratings.movie_id, user_id, rating
FROM parquet.`{ratings}` AS ratings JOIN parquet.`{movies}` AS movies ON ratings.movie_id = movies.movie_id
WHERE year < 1970
"""
QUERY = """
WITH agreements AS (
    SELECT one.movie_id, other.movie_id AS other_id, SUM(one.rating * other.rating) AS agreement
    FROM preferences AS one JOIN preferences AS other ON one.user_id = other.user_id
    GROUP BY one.movie_id, other.movie_id
),
predicted AS (
    SELECT agreements.movie_id, user_id, SUM(agreement * rating) AS score
    FROM agreements JOIN preferences ON other_id = preferences.movie_id
    GROUP BY agreements.movie_id, user_id
)
SELECT user_id, MAX(score) AS score FROM predicted GROUP BY user_id
"""


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(THREADS)}
    spark = SparkSession.builder.master(f"local[{THREADS}]").config(map=settings).getOrCreate()
    spark.sql(PREFERENCES.format(**inputs))
    pq.write_table(spark.sql(QUERY).toArrow(), outputs["result"])
    spark.sql("UNCACHE TABLE preferences")
    spark.sql("DROP VIEW preferences")  # a warm session would refuse to make it again
