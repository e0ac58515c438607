"""Ctrl-C in tests: the main thread is interrupted while it waits for something."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.waiting import POLL_S

AGAIN_AFTER_S = 1.0


@contextmanager
def interrupted(when: Callable[[], object]) -> Iterator[None]:
    """Interrupt what is done here, as by Ctrl-C, once `when` holds; the `KeyboardInterrupt` has to come out of it.

    The signal is sent until its handler runs: one that arrives after the thread's last look for signals, but before
    it sleeps for a lock, is seen by nobody until the lock is released (CPython's, not ours).
    """
    over, heard = threading.Event(), threading.Event()
    main = threading.main_thread().ident
    assert main == threading.get_ident()

    def hear(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        while not (over.is_set() or when()):
            time.sleep(POLL_S)
        while not (over.is_set() or heard.is_set()):
            signal.pthread_kill(main, signal.SIGINT)
            heard.wait(AGAIN_AFTER_S)

    interrupting = threading.Thread(target=interrupt, daemon=True)
    before = signal.signal(signal.SIGINT, hear)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        over.set()
        interrupting.join()
        signal.signal(signal.SIGINT, before)
