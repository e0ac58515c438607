-- Collaborative filtering: how much each user may like what others rated who rated alike; of that the most for each
-- user (the thesis's figure 4.1). Films from before 1970 only, which keeps the product of the matrices small.
-- movies (movie_id INTEGER, year INTEGER), ratings (movie_id INTEGER, user_id INTEGER, rating INTEGER)
SELECT movie_id, year FROM movies WHERE year < 1970 AS old_movies;
ratings JOIN old_movies ON ratings.movie_id = old_movies.movie_id AS rated;
SELECT movie_id, user_id, rating FROM rated AS preferences;

-- The matrix (film, film) of agreement: by how many users, and how strongly, both were rated.
SELECT user_id, movie_id AS other_id, rating AS other_rating FROM preferences AS transposed;
preferences JOIN transposed ON preferences.user_id = transposed.user_id AS pairs;
SELECT movie_id, other_id, rating * other_rating AS agreement FROM pairs AS entries;
SELECT movie_id, other_id, SUM(agreement) AS agreement FROM entries
GROUP BY movie_id AND other_id AS agreements;

-- The matrix times each user's ratings.
agreements JOIN preferences ON agreements.other_id = preferences.movie_id AS weighted;
SELECT movie_id, user_id, agreement * rating AS score FROM weighted AS scores;
SELECT movie_id, user_id, SUM(score) AS score FROM scores
GROUP BY movie_id AND user_id AS predicted;
SELECT user_id, MAX(score) AS score FROM predicted
GROUP BY user_id AS best;
