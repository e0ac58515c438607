"""Several workers of Dask in one process: `python -m benchmarks.shortest_task.dask_workers ADDRESS COUNT SLOTS`."""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def run(address: str, count: int, slots: int) -> None:
    """Until they are closed."""
    from distributed import Worker

    async with contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Worker(address, nthreads=slots)) for _ in range(count)]
        await asyncio.gather(*(worker.finished() for worker in workers))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
