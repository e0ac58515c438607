"""Jobs of tasks that do nothing, sleep, or use CPU time.

The payload of a sleep or a spin is a msgpack float of seconds, a noop's is empty; none has a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from sparrow_py.errors import InvalidRequest
from sparrow_py.job import JobSpec, check_number, check_whole

NOOP_APP = "noop"
SLEEP_APP = "sleep"
SPIN_APP = "spin"
DURATION_S_MAX = 1e9
"""Limit on a duration: 32 years."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(float).decode


def noop_job(n: int, **options: Any) -> JobSpec:
    """A job of `n` tasks that do nothing. `options` are `JobSpec`'s."""
    check_whole("n", n, 0, 2**40)
    return JobSpec(tasks=[b""] * n, app=NOOP_APP, **options)


def sleep_job(durations_s: Iterable[float], **options: Any) -> JobSpec:
    """A job with a task for each duration, that occupies a slot for so many seconds without using the CPU."""
    return JobSpec(tasks=_payloads(durations_s), app=SLEEP_APP, **options)


def spin_job(durations_s: Iterable[float], **options: Any) -> JobSpec:
    """A job with a task for each duration, that multiplies until it has used so many seconds of CPU time."""
    return JobSpec(tasks=_payloads(durations_s), app=SPIN_APP, **options)


def encode_duration(duration_s: float) -> bytes:
    """The payload of a sleep or spin of this many seconds."""
    return _encode(float(duration_s))


def decode_duration(payload: bytes) -> float:
    """The seconds that a payload says; `InvalidRequest` if it is not a duration."""
    try:
        duration_s = _decode(payload)
    except msgspec.MsgspecError:
        raise InvalidRequest("payload", payload, "a msgpack float of seconds") from None
    check_number("payload", duration_s, 0, DURATION_S_MAX)
    return duration_s


def _payloads(durations_s: Iterable[float]) -> list[bytes]:
    payloads = []
    for index, duration_s in enumerate(durations_s):
        check_number(f"durations_s[{index}]", duration_s, 0, DURATION_S_MAX)
        payloads.append(encode_duration(duration_s))
    return payloads
