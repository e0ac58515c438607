"""Chaos: rounds of random jobs against random kills and stops of real daemons, judged by what is guaranteed."""
