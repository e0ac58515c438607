"""Collaborative filtering, in Lindi: how much each user may like what others rated who rated alike; the most of it."""

from frontends.workflow.ir.types import Type
from frontends.workflow.languages.lindi import Lindi, Query


def workflow(lindi: Lindi) -> Query:
    movies = lindi.table("movies", movie_id=Type.INTEGER, year=Type.INTEGER)
    ratings = lindi.table("ratings", movie_id=Type.INTEGER, user_id=Type.INTEGER, rating=Type.INTEGER)
    old = movies.where("year < 1970")
    preferences = ratings.join(old, "movie_id", "movie_id").select(["movie_id", "user_id", "rating"])

    others = preferences.select({"other_id": "movie_id", "user_id": "user_id", "other_rating": "rating"})
    pairs = preferences.join(others, "user_id", "user_id")
    entries = pairs.select({"movie_id": "movie_id", "other_id": "other_id", "agreement": "rating * other_rating"})
    agreement = entries.group_by(["movie_id", "other_id"], "SUM", "agreement")

    weighted = agreement.join(preferences, "other_id", "movie_id")
    scores = weighted.select({"movie_id": "movie_id", "user_id": "user_id", "score": "agreement * rating"})
    predicted = scores.group_by(["movie_id", "user_id"], "SUM", "score")
    return predicted.max("user_id", "score", name="best")
