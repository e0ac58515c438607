-- The dearest property of each street (the thesis's listing 3.1).
-- properties (id INTEGER, street STRING, town STRING), prices (id INTEGER, price DOUBLE)
SELECT id, street, town FROM properties AS locs;
locs JOIN prices ON locs.id = prices.id AS id_price;
SELECT street, town, MAX(price) FROM id_price
GROUP BY street AND town AS street_price;
