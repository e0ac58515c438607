"""Min-cost-flow scheduling (Firmament, paper 004, chapter 5): the plane, and below it the mathematics, which imports
nothing else of ours.

`problem` says what a min-cost-flow problem and its solution are, `solvers` solve it, `graph` holds one that changes.
All of it needs the extra `flow` (numba), which no other daemon imports.
"""
