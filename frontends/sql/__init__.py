"""The sql framework: a small Shark. A frontend compiles SQL into stages, executors hold partitions in memory.

`SqlFrontend` is in `frontends.sql.frontend`; docs/sql.md says how to use it. The packages that it needs are the extra
`sql`; only this package and what it imports at once do without them.
"""
