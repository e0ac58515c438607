"""`python -m node_monitor`, `sparrow-node-monitor`."""

from __future__ import annotations

from node_monitor.options import NodeMonitorOptions
from sparrow_py.daemon import process
from sparrow_py.daemon.options import command


def _run(options: NodeMonitorOptions) -> None:
    from node_monitor.daemon import NodeMonitorDaemon
    from sparrow_py.processes.orphans import Orphans

    orphans = Orphans()
    process.run(lambda: NodeMonitorDaemon(options, orphans=orphans), options)


main = command(
    "sparrow-node-monitor",
    NodeMonitorOptions,
    _run,
    "A Sparrow node monitor: offers this machine's slots to the schedulers that it dials.",
)

if __name__ == "__main__":
    main()
