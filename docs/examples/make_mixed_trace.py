"""Makes docs/examples/mixed.trace: a few hundred jobs, short queries of one user and long ones of another.

python docs/examples/make_mixed_trace.py > docs/examples/mixed.trace
"""

import json
import random

JOBS = 250
KINDS = (
    # user, share of jobs, tasks, mean seconds of a task
    ("dashboards", 0.5, 5, 0.05),
    ("dashboards", 0.3, 15, 0.1),
    ("reports", 0.15, 30, 0.2),
    ("reports", 0.05, 100, 0.4),
)

rng = random.Random("mixed")
at_s = 0.0
for _ in range(JOBS):
    at_s += rng.expovariate(10.0)
    user, _, tasks, mean_s = rng.choices(KINDS, weights=[kind[1] for kind in KINDS])[0]
    # Tasks of a stage are alike, with a straggler now and then.
    durations_s = [round(mean_s * rng.lognormvariate(-0.125, 0.5), 3) for _ in range(tasks)]
    print(json.dumps({"arrival_s": round(at_s, 3), "durations_s": durations_s, "user": user}))
