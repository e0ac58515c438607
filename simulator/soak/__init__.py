"""A cluster under virtual time whose parts fail, and the soak: many seeds of it, held to the guarantees."""
