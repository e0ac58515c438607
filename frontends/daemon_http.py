"""Requests to daemons over HTTP, and what their answers are: for commands and frontends without an event loop."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sparrow_py.access.credentials import Access, tls_reason
from sparrow_py.errors import LinkError, NoScheduler, SparrowError

TIMEOUT_S = 5.0
"""How long a daemon may take to answer a short question."""
SUBMIT_TIMEOUT_S = 60.0
"""How long a scheduler may take to read a job, and how long a client tries again if schedulers have no room for it."""
READ_BYTES = 64 << 10
NOT_THERE = frozenset({http.HTTPStatus.NOT_FOUND})
"""Statuses above 399 that are answers; all other such statuses are errors."""


class NotReached(NoScheduler):
    """No process listens at the address, so that the request was not sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the scheduler at `address` answered."""

    address: str
    status: int
    body: dict[str, Any]
    retry_after_s: int | None = None


def ask(
    address: str,
    access: Access,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    allowed: Container[int] = NOT_THERE,
    daemon: str = "scheduler",
) -> Answer:
    """The answer of the daemon at `address`, which errors call `daemon`.

    Raises `NoScheduler` if there is no answer, `SparrowError` if the daemon refuses with a status that is not
    `allowed`.
    """
    with opened(address, access, method, path, body, daemon) as response:
        status, retry_after = response.status, response.headers.get("Retry-After", "")
        with _raising_no_scheduler(address, daemon, access):
            data = response.read()
    retry_after_s = int(retry_after) if retry_after.isdecimal() else None
    return Answer(address, status, _checked_body(address, status, data, allowed, daemon), retry_after_s)


@contextlib.contextmanager
def opened(
    address: str,
    access: Access,
    method: str,
    path: str,
    body: bytes | None = None,
    daemon: str = "scheduler",
    *,
    patient: bool = False,
) -> Iterator[http.client.HTTPResponse]:
    """An answer whose body is yet to be read, without a time limit if `patient`.

    `NotReached` if no process listens at the address, `NoScheduler` if the one that does gives no answer.
    """
    connection = access.http_connection(address, TIMEOUT_S)
    headers = access.headers()
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        with _raising_no_scheduler(address, daemon, access, NotReached):
            connection.connect()
        sock = connection.sock
        if body is not None:
            sock.settimeout(SUBMIT_TIMEOUT_S)
        with _raising_no_scheduler(address, daemon, access):
            # A daemon that stops reading a body has answered before it closed the connection.
            with contextlib.suppress(BrokenPipeError):
                connection.request(method, path, body, headers)
            response = connection.getresponse()
        if patient:
            sock.settimeout(None)
        yield response
    finally:
        connection.close()


@contextlib.contextmanager
def following(
    address: str, access: Access, path: str, *, allowed: Container[int] = NOT_THERE
) -> Iterator[Iterator[bytes] | None]:
    """The lines of an answer as they come, however long that takes; None if the status is another that is `allowed`.

    `NoScheduler` if there is no answer, `SparrowError` if it is a refusal; the lines raise `LinkError` if they break
    off.
    """
    with opened(address, access, "GET", path, patient=True) as response:
        if response.status == http.HTTPStatus.OK:
            yield _read_lines(address, response)
            return
        with _raising_no_scheduler(address, "scheduler", access):
            data = response.read()
        _checked_body(address, response.status, data, allowed, "scheduler")
        yield None


def _read_lines(address: str, response: http.client.HTTPResponse) -> Iterator[bytes]:
    rest = b""
    while data := _read_chunk(address, response):
        *lines, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


def _read_chunk(address: str, response: http.client.HTTPResponse) -> bytes:
    """The bytes that have come; empty at the answer's end. Unlike `readline`, `read1` shows an answer that is cut."""
    try:
        data = response.read1(READ_BYTES)
        if not data and response.length:
            raise http.client.IncompleteRead(b"")
    except (OSError, http.client.HTTPException):
        raise LinkError(f"the results broke off: scheduler {address} ended, or keeps them no more") from None
    return data


@contextlib.contextmanager
def _raising_no_scheduler(
    address: str, daemon: str, access: Access, kind: type[NoScheduler] = NoScheduler
) -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = tls_reason(error, access) or said
        raise kind(f"no {daemon} answers at {address}: {reason}") from None


def _checked_body(address: str, status: int, data: bytes, allowed: Container[int], daemon: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise LinkError(f"what answers at {address} is not a {daemon} (HTTP status {status})")
    if status >= http.HTTPStatus.BAD_REQUEST and status not in allowed:
        raise SparrowError(f"{daemon} {address} refused: {message(body) or f'HTTP status {status}'}")
    return body


def message(body: dict[str, Any]) -> str:
    """The message of an error's body; empty if it has none."""
    error = body.get("error")
    text = error.get("message") if isinstance(error, dict) else None
    return text if isinstance(text, str) else ""


def listed(answers: Iterable[Answer], key: str, daemon: str = "scheduler") -> list[tuple[str, dict[str, Any]]]:
    """The entries under `key` in all answers, each with the address of the scheduler that it is from."""
    entries = []
    for answer in answers:
        listing = answer.body.get(key)
        if not isinstance(listing, list):
            raise LinkError(f"what answers at {answer.address} is not a {daemon}: its answer has no {key}")
        entries += [(answer.address, entry) for entry in listing]
    return entries
