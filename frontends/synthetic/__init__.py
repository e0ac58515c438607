"""Tasks that only take time, for experiments: noop and sleep, which node monitors run themselves, and spin.

`frontends.synthetic.tasks` makes the jobs; `python -m frontends.synthetic.spin_executor` runs spins.
"""
