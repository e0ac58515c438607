"""A scheduler's history of stages, and its file: read when the scheduler starts, written now and then by a thread.

The loop waits for no disk and no lock. While the file is locked, news is put together in memory, as much as is
remembered. After any other error nothing is written any more, and the log says so once: the scheduler lives on with
what it has in memory.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor

from scheduler.altruistic.known_stages import KnownStages
from scheduler.altruistic.stage_history import StageHistory
from scheduler.stage_history.file import LOCK_TIMEOUT_S, DamagedFileError, StageHistoryFile, is_locked

log = logging.getLogger("sparrow.scheduler.stage_history")
FLUSH_S = 1.0
"""What has ended within so long is written together; it is lost if the process is killed meanwhile."""


class KeptStageHistory:
    """See the module's docstring. All methods but `_write` and `_close` are for the loop's thread.

    `InvalidOption` if the file cannot be used.
    """

    def __init__(self, path: str, flush_s: float = FLUSH_S, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._file = StageHistoryFile(path, lock_timeout_s=lock_timeout_s)
        try:
            self.history = StageHistory(self._file.read(), self._has_news)
        except BaseException:
            self._file.close()
            raise
        self._flush_s = flush_s
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stage-history")
        self._said_locked = False
        self._writes = True
        self._closing = False

    def _has_news(self) -> None:
        if self._writes and self._timer is None and not self._closing:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._writing is not None and not self._writing.done():  # The disk is slow, or another has the lock.
            self._has_news()
        else:
            self._writing = asyncio.get_running_loop().create_task(self._write_news())

    async def _write_news(self) -> None:
        news = self.history.take_news()
        if not await asyncio.get_running_loop().run_in_executor(self._thread, self._write, news):
            self.history.give_back(news)
            self._has_news()

    def _write(self, news: KnownStages) -> bool:
        """On the thread. Returns whether it is done with them."""
        if not self._writes:
            return True
        try:
            self._file.add(news)
        except (sqlite3.Error, DamagedFileError) as error:
            if is_locked(error):
                if not self._said_locked:
                    log.warning("the stage history %s is locked, and is written later", self._file.path)
                self._said_locked = True
                return False
            log.error("the stage history %s is written no more: %s", self._file.path, error)
            self._writes = False
        self._said_locked = False
        return True

    async def close(self) -> None:
        """Write what there is, unless the file is locked for longer than is waited."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing
        await self._write_news()
        missing = len(self.history.take_news())
        if missing:
            log.warning(
                "the stage history %s stays locked, and lacks what ran last (stages: %d)", self._file.path, missing
            )
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown()
