"""Movie recommendations (examples/workflow/netflix.hql) by hand in Polars: one lazy frame."""

import polars as pl


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    old = pl.scan_parquet(inputs["movies"]).filter(pl.col("year") < 1970).select("movie_id")
    preferences = pl.scan_parquet(inputs["ratings"]).join(old, on="movie_id").select("movie_id", "user_id", "rating")
    others = preferences.rename({"movie_id": "other_id", "rating": "other_rating"})
    agreements = (
        preferences.join(others, on="user_id")
        .group_by("movie_id", "other_id")
        .agg((pl.col("rating") * pl.col("other_rating")).sum().alias("agreement"))
    )
    predicted = (
        agreements.join(preferences.rename({"movie_id": "other_id"}), on="other_id")
        .group_by("movie_id", "user_id")
        .agg((pl.col("agreement") * pl.col("rating")).sum().alias("score"))
    )
    best = predicted.group_by("user_id").agg(pl.col("score").max())
    best.collect().write_parquet(outputs["result"])
