"""The apps noop and sleep, built into the node monitor: for experiments with hundreds of slots in a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import FAILED, FINISHED

BUILTIN_APPS = ("noop", "sleep")
SLEEP_MAX_S = 1e6

Ended = Callable[[str, x.Done], None]
_duration = msgspec.msgpack.Decoder(float).decode
_json_duration = msgspec.json.Decoder(float).decode
DIGITS = b"0123456789"
"""What a JSON number begins with, and no msgpack float."""


class Builtin:
    """Runs the built-in apps' tasks. `ended_now` takes those that end at once, `ended_later` the others."""

    def __init__(self, clock: Callable[[], float], ended_now: Ended, ended_later: Ended) -> None:
        self._clock = clock
        self._ended_now = ended_now
        self._ended_later = ended_later
        self._timers: dict[int, tuple[asyncio.TimerHandle, float]] = {}

    def run(self, app: str, message: x.ExecutorMessage) -> None:
        """A message of the core to the executor of a built-in app; the executor's id is the app's name."""
        if isinstance(message, x.Kill):
            self._kill(app, message.runs)
        if isinstance(message, x.Yield):
            self._end_early(app, message.run)
        if not isinstance(message, x.Run):
            return  # Common bytes mean nothing to these apps; runs on many places start at once, so none is revoked.
        started_at_s = self._clock()
        if app == "noop":
            self._ended_now(app, x.Done(message.run, FINISHED, b"", "", started_at_s, 0.0))
            return
        try:
            if isinstance(message.payload, x.File):
                raise msgspec.ValidationError(f"{message.payload.size} bytes are no number")
            decode = _json_duration if message.payload[:1] in DIGITS and message.payload else _duration
            duration_s = decode(message.payload)
            if not 0 <= duration_s <= SLEEP_MAX_S:
                raise msgspec.ValidationError(f"{duration_s} is not from 0 to {SLEEP_MAX_S:g}")
        except msgspec.MsgspecError as error:
            reason = f"payload: {error}; allowed: a number of seconds as a msgpack float or as JSON"
            self._ended_now(app, x.Done(message.run, FAILED, b"", reason, started_at_s, 0.0))
            return
        timer = asyncio.get_running_loop().call_later(duration_s, self._awake, app, message.run, started_at_s)
        self._timers[message.run] = (timer, started_at_s)

    def _awake(self, app: str, run: int, started_at_s: float) -> None:
        del self._timers[run]
        service_s = max(0.0, self._clock() - started_at_s)
        self._ended_later(app, x.Done(run, FINISHED, b"", "", started_at_s, service_s))

    def _kill(self, app: str, runs: list[int]) -> None:
        for run in runs:
            if run in self._timers:
                timer, started_at_s = self._timers.pop(run)
                timer.cancel()
                service_s = max(0.0, self._clock() - started_at_s)
                done = x.Done(run, FAILED, b"", "it was killed", started_at_s, service_s)
                self._ended_now(app, done)

    def _end_early(self, app: str, run: int) -> None:
        """A sleep that is asked to yield is over."""
        if run in self._timers:
            timer, started_at_s = self._timers.pop(run)
            timer.cancel()
            self._ended_now(app, x.Done(run, FINISHED, b"", "", started_at_s, max(0.0, self._clock() - started_at_s)))

    def stop(self) -> None:
        """Wake nobody any more."""
        for timer, _ in self._timers.values():
            timer.cancel()
