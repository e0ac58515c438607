"""Six faults at Sparrow, Dask, Ray and Celery, and what the user of each sees: `python -m benchmarks.faults_peers`.

Each system runs with its own defaults, as processes of their own on this machine: what schedules (a scheduler, a head
node, a broker) and `faults.WORKERS` workers of `faults.SLOTS` slots. A program of its own, the *user* (`user.py`),
submits one job and writes down what it is told and when. `run.py` brings the fault about in the middle of the job.
Systems that are not installed are skipped; the extra `peers` brings them, and Celery needs a `redis-server` besides.
"""
