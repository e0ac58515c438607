"""Makes ready what a plane's problems need before the first of them. Where solvers have to be compiled, which takes a
minute, a process of its own does that: it leaves the daemon its time, and can be ended at any moment."""

from __future__ import annotations

import asyncio
import logging
import os

from scheduler.planes import WarmUp
from scheduler.solving import Solving
from sparrow_py.start import command

log = logging.getLogger("sparrow.scheduler")


class WarmingUp:
    """Problems wait until it is over (`Solving.hold`)."""

    def __init__(self, warm_up: WarmUp, solving: Solving) -> None:
        self._warm_up = warm_up
        self._solving = solving
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on this loop."""
        self._solving.hold()
        here = self._solving.compute(self._warm_up.here)  # Before all problems.
        self._task = asyncio.create_task(self._run(here))

    @property
    def is_over(self) -> bool:
        """Whether problems are solved from now on."""
        return self._task is not None and self._task.done()

    async def stop(self) -> None:
        """End it, wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, here: asyncio.Future[None]) -> None:
        try:
            if not self._warm_up.is_compiled():
                await self._compile()
            self._solving.release()
            await here
        except Exception:
            log.exception("the solvers could not be made ready; each round tries again")
        finally:
            self._solving.release()
            here.cancel()

    async def _compile(self) -> None:
        log.info("the solvers are being compiled, which was not done here before")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARROW_")}
        process = await asyncio.create_subprocess_exec(
            *command(self._warm_up.module, str(os.getpid())),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env=environment,
        )
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code:
            log.warning("the process that compiles the solvers ended with exit code %d: they are compiled here", code)
