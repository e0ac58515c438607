"""`python -m node_monitor`, `sparrow-node-monitor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node_monitor.options import NodeMonitorOptions
from sparrow_py.daemon import process
from sparrow_py.daemon.options import command

if TYPE_CHECKING:
    from sparrow_py.processes.orphans import Orphans


def _run(options: NodeMonitorOptions) -> None:
    from sparrow_py.processes.orphans import Orphans

    orphans = Orphans()
    process.run(lambda: _daemon(options, orphans), options)


def _daemon(options: NodeMonitorOptions, orphans: Orphans) -> process.Daemon:
    """Imported here, as that takes most of the start: signals are heeded meanwhile."""
    from node_monitor.daemon import NodeMonitorDaemon

    return NodeMonitorDaemon(options, orphans=orphans)


main = command(
    "sparrow-node-monitor",
    NodeMonitorOptions,
    _run,
    "A Sparrow node monitor: offers this machine's slots to the schedulers that it dials.",
)

if __name__ == "__main__":
    main()
