"""The shortest task that a scheduler can take before response times break down (§7.4, figure 13): ours, and others.

`python -m benchmarks.shortest_task`. At each system arrive the same jobs of `TASKS` sleeping tasks, at equal distances,
at a rate that keeps the load. As tasks get shorter there are more of them in a second, until response times are
`BROKEN` times the ideal or jobs do not end. Ours are sampling and the central scheduler; Dask and Ray take part where
they are installed (extra `peers`). A response counts from when the job was due until its user's program knows the last
result, so each system's client counts, too.
"""
