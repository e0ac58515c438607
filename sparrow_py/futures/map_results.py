"""The results of a `map`, in order, while further calls are submitted behind them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from sparrow_py.futures.interrupts import cancel_soon, stop_if_interrupted
from sparrow_py.futures.task_future import TaskFuture


class Canceller(Protocol):
    """Cancels tasks: `client.Client`."""

    def cancel(self, futures: Sequence[TaskFuture], /) -> None:
        """Cancel these tasks, as far as they have not started."""


class MapResults:
    """What is in flight of one `map`."""

    def __init__(
        self,
        canceller: Canceller,
        pending: deque[TaskFuture],
        refill: Callable[[], None],
        in_flight_max: int,
        deadline_s: float | None,
        now_s: Callable[[], float],
    ) -> None:
        """pending: the tasks whose results were not given yet, in order; each has the results of several calls.
        refill: submits further calls, and appends their tasks. in_flight_max: tasks that may be pending at a time.
        deadline_s: when `TimeoutError` is raised, by the clock `now_s`; None: never."""
        self._canceller = canceller
        self._pending = pending
        self._refill = refill
        self._in_flight_max = in_flight_max
        self._deadline_s = deadline_s
        self._now_s = now_s

    def values(self, start_bar: Callable[[], Callable[[int | None], None]] | None) -> Iterator[Any]:
        """The results, in order. What is pending when they are given up is cancelled. start_bar: starts a progress bar,
        which is told of each task, and by None of the end."""
        pending = self._pending
        bar = start_bar() if start_bar is not None else None
        try:
            while pending:
                values = pending[0].result(self._left_s())
                pending.popleft().outcome = None  # It has the result's bytes, and its job may last.
                values.reverse()
                while values:  # The future has the same list: nothing here refers to what was yielded.
                    yield values.pop()
                if len(pending) * 2 <= self._in_flight_max:
                    self._refill()
                if bar is not None:
                    bar(1)
        except KeyboardInterrupt as error:
            if stop_if_interrupted(pending, error):
                pending.clear()  # Who presses Ctrl-C does not wait until they have stopped.
            raise
        except GeneratorExit:
            # Nor does whoever gives them up, which may be the collector in the midst of anything that this client does.
            cancel_soon(pending, running=False)
            pending.clear()
            raise
        finally:
            if bar is not None:
                bar(None)
            self._canceller.cancel(pending)

    def _left_s(self) -> float | None:
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._now_s())
