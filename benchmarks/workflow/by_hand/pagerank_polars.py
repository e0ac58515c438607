"""PageRank (examples/workflow/pagerank.gas), five iterations, by hand in Polars."""

import polars as pl

ITERATIONS = 5


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    edges = pl.scan_parquet(inputs["edges"])
    shares = edges.group_by("src").agg((1.0 / pl.len()).alias("share"))
    links = edges.join(shares, on="src").select("src", "dst", "share").collect()
    ranks = pl.read_parquet(inputs["vertices"], columns=["id", "value"])
    for _ in range(ITERATIONS):
        ranks = (
            links.lazy()
            .join(ranks.lazy(), left_on="src", right_on="id")
            .group_by(pl.col("dst").alias("id"))
            .agg((0.15 + 0.85 * (pl.col("value") * pl.col("share")).sum()).alias("value"))
            .collect()
        )
    ranks.write_parquet(outputs["result"])
