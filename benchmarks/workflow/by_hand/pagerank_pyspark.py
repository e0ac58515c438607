"""PageRank (examples/workflow/pagerank.gas), five iterations, by hand in PySpark: data frames."""

import os

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

THREADS = int(os.environ.get("WORKFLOW_THREADS") or os.cpu_count() or 1)
ITERATIONS = 5


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(THREADS)}
    spark = SparkSession.builder.master(f"local[{THREADS}]").config(map=settings).getOrCreate()
    edges = spark.read.parquet(inputs["edges"]).select("src", "dst")
    degrees = edges.groupBy("src").agg(f.count("*").alias("degree"))
    links = edges.join(degrees, "src").select("src", "dst", (1.0 / f.col("degree")).alias("share"))
    links = links.repartition(THREADS, "src").cache()
    ranks = spark.read.parquet(inputs["vertices"]).select("id", "value")
    for _ in range(ITERATIONS):
        sent = links.join(ranks, links["src"] == ranks["id"]).select(
            "dst", (f.col("value") * f.col("share")).alias("part")
        )
        ranks = sent.groupBy("dst").agg((0.15 + 0.85 * f.sum("part")).alias("value")).withColumnRenamed("dst", "id")
    pq.write_table(ranks.toArrow(), outputs["result"])
    links.unpersist()
