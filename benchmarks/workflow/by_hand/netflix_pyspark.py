"""Movie recommendations (examples/workflow/netflix.hql) by hand in PySpark: data frames, of which one is kept."""

import os

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

THREADS = int(os.environ.get("WORKFLOW_THREADS") or os.cpu_count() or 1)


def session() -> SparkSession:
    """The session of this process, or a first one."""
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(THREADS)}
    return SparkSession.builder.master(f"local[{THREADS}]").config(map=settings).getOrCreate()


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    spark = session()
    old = spark.read.parquet(inputs["movies"]).where("year < 1970").select("movie_id")
    ratings = spark.read.parquet(inputs["ratings"])
    preferences = ratings.join(f.broadcast(old), "movie_id").select("movie_id", "user_id", "rating").cache()
    others = preferences.select("user_id", f.col("movie_id").alias("other_id"), f.col("rating").alias("other_rating"))
    agreements = (
        preferences.join(others, "user_id")
        .groupBy("movie_id", "other_id")
        .agg(f.sum(f.col("rating") * f.col("other_rating")).alias("agreement"))
    )
    rated = preferences.withColumnRenamed("movie_id", "other_id")
    predicted = (
        agreements.join(rated, "other_id")
        .groupBy("movie_id", "user_id")
        .agg(f.sum(f.col("agreement") * f.col("rating")).alias("score"))
    )
    best = predicted.groupBy("user_id").agg(f.max("score").alias("score"))
    pq.write_table(best.toArrow(), outputs["result"])
    preferences.unpersist()
