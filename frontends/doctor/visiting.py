"""Visits to daemons: connections of the doctor's own, of which it sees the certificate and the date."""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import http.client
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from frontends.daemon_http import message
from frontends.doctor.facts import BlobTrip, Certificate, Visit
from frontends.doctor.machine_gathering import not_after_s
from sparrow_py.access.credentials import Access, tls_reason
from sparrow_py.errors import NoScheduler

TIMEOUT_S = 5.0
BODY_BYTES_MAX = 64 << 20
"""What is read of an answer: the nodes of a large cluster."""
BLOB_BYTES = 64
SCHEDULER, NODE_MONITOR = "scheduler", "node monitor"
DETAILS = {SCHEDULER: "/v1/scheduler", NODE_MONITOR: "/v1/nodes"}
"""Where each says its version."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and what its date says of the clock."""

    status: int
    data: bytes
    clock_ahead_s: float | None
    clock_error_s: float

    def body(self) -> dict[str, Any]:
        """The JSON object in it; empty if there is none."""
        with contextlib.suppress(ValueError):
            found = json.loads(self.data)
            if isinstance(found, dict):
                return found
        return {}

    def refusal(self) -> str:
        """Why it is no good answer; empty if it is one."""
        if self.status < HTTPStatus.BAD_REQUEST:
            return ""
        return message(self.body()) or f"HTTP status {self.status}"


class Connection:
    """To the daemon at an address. `NoScheduler` says why there is no answer."""

    def __init__(self, address: str, access: Access) -> None:
        self._access = access
        self._http = access.http_connection(address, TIMEOUT_S)

    def __enter__(self) -> Connection:
        with self._reasons():
            self._http.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def certificate(self, subject: str) -> Certificate | None:
        """The one that the daemon shows; None without TLS."""
        found = getattr(self._http.sock, "getpeercert", lambda: None)()
        return Certificate(subject, "", not_after_s(found)) if found else None

    def ask(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """One request and its answer."""
        with self._reasons():
            sent_s = time.time()
            self._http.request(method, path, body, self._access.headers())
            response = self._http.getresponse()
            took_s = time.time() - sent_s
            data = response.read(BODY_BYTES_MAX)
        ahead_s = clock_ahead_s(response.headers.get("Date"), sent_s, took_s)
        return Reply(response.status, data, ahead_s, 0.5 + took_s / 2)

    @contextlib.contextmanager
    def _reasons(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoScheduler(f"no answer: {tls_reason(error, self._access) or said}") from None


def clock_ahead_s(date: str | None, sent_s: float, took_s: float) -> float | None:
    """How far the clock is ahead that wrote this date (of whole seconds, rounded down) into an answer; None if it is
    no date."""
    try:
        written = email.utils.parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return written.timestamp() + 0.5 - (sent_s + took_s / 2)


def visit(kind: str, address: str, access: Access) -> Visit:
    """See whether a daemon of this kind is there, ready, and of which version; of a scheduler, also its nodes."""
    try:
        with Connection(address, access) as connection:
            ready = connection.ask("GET", "/readyz")
            details = connection.ask("GET", DETAILS[kind])
            nodes = connection.ask("GET", "/v1/nodes").body().get("nodes") if kind == SCHEDULER else []
            certificate = connection.certificate(f"of {kind} {address}")
    except NoScheduler as error:
        return Visit(kind, address, str(error))
    said, refusal = details.body(), details.refusal()
    if details.status == HTTPStatus.NOT_FOUND or not (refusal or _is_from(kind, said)):
        other = f"a {NODE_MONITOR}" if isinstance(nodes, list) and kind == SCHEDULER else f"no {kind}"
        return Visit(kind, address, f"what answers there is {other}", is_other=True)
    return Visit(
        kind,
        address,
        "",
        False,
        "" if ready.status == HTTPStatus.OK else ready.data.decode("utf-8", "replace").strip(),
        refusal,
        details.clock_ahead_s,
        details.clock_error_s,
        certificate,
        str(said.get("version", "")),
        int(said.get("protocol", 0)),
        tuple(node for node in nodes or [] if isinstance(node, dict)),
        _linked(said) if kind == NODE_MONITOR else (),
    )


def _linked(said: dict[str, Any]) -> tuple[str, ...]:
    """The addresses of schedulers in what a node monitor said; Unix sockets are of its machine alone."""
    listed = said.get("nodes")
    nodes = [node for node in (listed if isinstance(listed, list) else []) if isinstance(node, dict)]
    named = {str(one) for node in nodes for one in node.get("scheduler_addresses") or ()}
    return tuple(sorted(one for one in named if "/" not in one))


def _is_from(kind: str, said: dict[str, Any]) -> bool:
    return isinstance(said.get("takes_jobs"), bool) if kind == SCHEDULER else isinstance(said.get("nodes"), list)


def take_blob(node: str, address: str, access: Access) -> BlobTrip:
    """Send a few random bytes to a node, and fetch them. They go by themselves, after `blob_retention_s`."""
    data = secrets.token_bytes(BLOB_BYTES)
    path = f"/v1/blobs/{hashlib.sha256(data).hexdigest()}"
    try:
        with Connection(address, access) as connection:
            if not_sent := connection.ask("PUT", path, data).refusal():
                return BlobTrip(node, address, not_sent)
    except NoScheduler as error:
        return BlobTrip(node, address, str(error))
    try:
        with Connection(address, access) as connection:
            reply = connection.ask("GET", path)
    except NoScheduler as error:
        return BlobTrip(node, address, "", str(error))
    return BlobTrip(node, address, "", reply.refusal() or ("" if reply.data == data else "other bytes came"))
