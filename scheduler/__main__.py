"""`python -m scheduler`, `sparrow-scheduler`."""

from __future__ import annotations

from scheduler.options import SchedulerOptions
from sparrow_py.daemon import process
from sparrow_py.daemon.options import command


def _run(options: SchedulerOptions) -> None:
    process.run(lambda: _daemon(options), options)


def _daemon(options: SchedulerOptions) -> process.Daemon:
    """Imported here, as that takes most of the start: signals are heeded meanwhile."""
    from scheduler.daemon import SchedulerDaemon

    return SchedulerDaemon(options)


main = command(
    "sparrow-scheduler",
    SchedulerOptions,
    _run,
    "A Sparrow scheduler: clients submit jobs to it, node monitors dial it. Run any number of them.",
)

if __name__ == "__main__":
    main()
