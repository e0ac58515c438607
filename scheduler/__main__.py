"""`python -m scheduler`, `sparrow-scheduler`."""

from __future__ import annotations

from scheduler.options import SchedulerOptions
from sparrow_py.daemon import process
from sparrow_py.daemon.options import command


def _run(options: SchedulerOptions) -> None:
    from scheduler.daemon import SchedulerDaemon

    process.run(lambda: SchedulerDaemon(options), options)


main = command(
    "sparrow-scheduler",
    SchedulerOptions,
    _run,
    "A Sparrow scheduler: clients submit jobs to it, node monitors dial it. Run any number of them.",
)

if __name__ == "__main__":
    main()
