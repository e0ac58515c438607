"""The client whose calls are traced, as a process of its own: `python -m benchmarks.hops.traced PROCESSES CALLS`."""

from __future__ import annotations

import sys

from benchmarks.functions import noop
from benchmarks.hops import recorder
from benchmarks.hops.cluster import running_client
from benchmarks.hops.path import BEGINS, ENDS


def main() -> None:
    processes, calls = sys.argv[1:]
    with running_client(processes) as (client, _):
        for _ in range(int(calls)):
            recorder.note(BEGINS)
            client.submit(noop).result()
            recorder.note(ENDS)


if __name__ == "__main__":
    main()
