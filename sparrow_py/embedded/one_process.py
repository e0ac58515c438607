"""The process of an embedded cluster's scheduler and node monitor: one interpreter, one event loop, no socket between.

As a program, `python -P …/sparrow_py/start.py sparrow_py.embedded.one_process FLAG… --and-node-monitor FLAG…`: the
scheduler's flags, then the node monitor's. What a process has only one of (its log, its standard input) the scheduler's
say. It announces the scheduler's address, and beside it what each of the two announces.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from sparrow_py.access.credentials import Credentials
from sparrow_py.daemon import process
from sparrow_py.daemon.options import WrongOption, parse
from sparrow_py.embedded.daemon_process import AND_NODE_MONITOR
from sparrow_py.errors import InvalidRequest, SparrowError
from sparrow_py.processes.orphans import Orphans

if TYPE_CHECKING:
    from node_monitor.options import NodeMonitorOptions
    from scheduler.options import SchedulerOptions


class OneProcess:
    """Both daemons, as one that is started and stopped."""

    kind = "scheduler and node monitor"

    def __init__(self, options: SchedulerOptions, node_options: NodeMonitorOptions, orphans: Orphans) -> None:
        from node_monitor.daemon import NodeMonitorDaemon
        from scheduler.daemon import SchedulerDaemon

        self._scheduler = SchedulerDaemon(options)
        self._node_monitor = NodeMonitorDaemon(node_options, orphans=orphans, scheduler=self._scheduler)
        self.credentials = _Both(self._scheduler.credentials, self._node_monitor.credentials)

    async def start(self) -> dict[str, Any]:
        """Start the scheduler, then the node monitor, which is attached to it."""
        scheduler = await self._scheduler.start()
        try:
            node_monitor = await self._node_monitor.start()
        except BaseException:
            await self._scheduler.stop()
            raise
        return {"address": scheduler["address"], "scheduler": scheduler, "node_monitor": node_monitor}

    async def drain(self) -> None:
        """Refuse new jobs and end those that were accepted; then the node has nothing left."""
        await self._scheduler.drain()
        await self._node_monitor.drain()

    async def stop(self) -> None:
        """End at once: the node monitor first, so that nothing runs on for a scheduler that is gone."""
        await self._node_monitor.stop()
        await self._scheduler.stop()

    async def renew(self) -> None:
        """Act on the credentials that were read again."""
        await asyncio.gather(self._scheduler.renew(), self._node_monitor.renew())


class _Both:
    """The credentials of both, which are of the same files."""

    def __init__(self, *credentials: Credentials) -> None:
        self._credentials = credentials

    @property
    def reloadable(self) -> bool:
        """See `process.Reloadable`."""
        return any(one.reloadable for one in self._credentials)

    def reload(self) -> bool:
        """See `process.Reloadable`."""
        return all([one.reload() for one in self._credentials])


def main(arguments: list[str]) -> None:
    """Be this process. What is wrong with a flag is said in one line, as daemons do."""
    from node_monitor.options import NodeMonitorOptions
    from scheduler.options import SchedulerOptions

    at = arguments.index(AND_NODE_MONITOR)
    try:
        options, node_options = parse(SchedulerOptions, arguments[:at]), parse(NodeMonitorOptions, arguments[at + 1 :])
        orphans = Orphans()
        process.run(lambda: OneProcess(options, node_options, orphans), options)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except InvalidRequest as error:
        WrongOption(str(error)).show()
        sys.exit(WrongOption.exit_code)
    except SparrowError as error:
        click.ClickException(str(error)).show()
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
