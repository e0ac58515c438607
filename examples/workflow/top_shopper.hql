-- The customers of an online shop in one country who have spent most (the thesis's listing 4.1, in which the last
-- statement reads usa_shoppers, which no other makes).
-- purchases (purchase_id INTEGER, amount INTEGER, user_id INTEGER, country STRING)
SELECT purchase_id, amount, user_id
FROM purchases
WHERE country = 'USA'
AS usa_purchases;

SELECT user_id, SUM(amount) AS total_amount
FROM usa_purchases
GROUP BY user_id
AS usa_spenders;

SELECT user_id, total_amount
FROM usa_spenders
WHERE total_amount > 12000
AS usa_big_spenders;
