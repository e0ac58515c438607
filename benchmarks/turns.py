"""Users who take turns: what is done of tasks of 10 ms at one node of two slots, for one user and for several.

Fair queueing alternates users at every task, and a worker runs tasks of one user only. Two users keep a worker each for
every slot; of six, more than are kept, most tasks take a fresh one. Tasks sleep, so what is lost is lost to starts.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from benchmarks import functions
from benchmarks.report import Report, Row, command, median_row
from sparrow_py import Client, LocalCluster

SLOTS = 2
TASKS = 600
USERS = (1, 2, 6)


def tasks_per_s(clients: list[Client]) -> float:
    """All tasks, shared among these."""
    started_s = time.perf_counter()
    jobs = [client.submit_calls(functions.sleep, [()] * (TASKS // len(clients))) for client in clients]
    for job in jobs:
        job.wait()
    return TASKS / (time.perf_counter() - started_s)


def sample() -> Row:
    """One cluster, in which the users come one after the other."""
    row: Row = {}
    with LocalCluster(slots=SLOTS) as cluster, ExitStack() as stack:
        clients = [stack.enter_context(Client(cluster, user=f"user{number}")) for number in range(max(USERS))]
        tasks_per_s(clients)
        for users in USERS:
            row[f"{users} users, tasks/s"] = tasks_per_s(clients[:users])
    alone = row[f"{USERS[0]} users, tasks/s"]
    return row | {f"{users} users, % of one": 100 * row[f"{users} users, tasks/s"] / alone for users in USERS[1:]}


def measure(repeat: int) -> Report:
    """The median of `repeat` clusters."""
    repetitions = [sample() for _ in range(repeat)]
    row = median_row(repetitions)
    return Report(
        "turns",
        row["2 users, % of one"],
        "% of one user's throughput, for two who take turns at tasks of 10 ms",
        {f"Tasks of 10 ms at {SLOTS} slots, median of {repeat}": [row]},
        repetitions,
        ["Aim: 90 % for two users."],
    )


main = command("turns", measure, repeat=5, help="What is done of 10 ms tasks of one user, two and six.")

if __name__ == "__main__":
    main()
