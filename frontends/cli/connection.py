"""Which schedulers a subcommand talks to, and how it asks them over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from sparrow_py.access.credentials import Access, tls_reason
from sparrow_py.access.secret_files import TLS_OPTIONS, read_tokens, tls_of
from sparrow_py.errors import LinkError, NoScheduler, SparrowError
from sparrow_py.logs.printable import printable
from sparrow_py.wire.addresses import SCHEDULERS_VARIABLE, check_source, sources_of_environment
from sparrow_py.wire.resolution import resolve

DEFAULT_SCHEDULER = "127.0.0.1:20503"
TIMEOUT_S = 5.0
"""How long a daemon may take to answer a short question."""
SUBMIT_TIMEOUT_S = 60.0
"""How long a scheduler may take to read a job, and how long a client tries again if schedulers have no room for it."""
READ_BYTES = 64 << 10
ASKED_AT_ONCE = 16
NOT_THERE = frozenset({http.HTTPStatus.NOT_FOUND})
"""Statuses above 399 that are answers; all other such statuses are errors."""

TLS_HELP = ("PEM file with our certificate, for mutual TLS.", "Its key.", "The authorities of daemons' certificates.")

F = TypeVar("F", bound=Callable[..., Any])


def connection_options(function: F) -> F:
    """Add `--scheduler`, which arrives as `schedulers`, and `--token-file`, `--tls-cert`, `--tls-key` and `--tls-ca`,
    which arrive as `access`."""
    scheduler = click.option(
        "-s",
        "--scheduler",
        "schedulers",
        metavar="ADDR",
        multiple=True,
        callback=_sources,
        help=f"A scheduler: host:port, file:PATH or dns:NAME:PORT; may be repeated. Default: {SCHEDULERS_VARIABLE}.",
    )
    token_file = click.option(
        "--token-file",
        metavar="FILE",
        envvar="SPARROW_TOKEN_FILE",
        help="File with the secret to show, the first if there are several. Default: SPARROW_TOKEN.",
    )
    files = [
        click.option(f"--{name.replace('_', '-')}", name, metavar="FILE", envvar=f"SPARROW_{name.upper()}", help=text)
        for name, text in zip(TLS_OPTIONS, TLS_HELP, strict=True)
    ]

    @functools.wraps(function)
    def with_access(
        *args: Any, token_file: str | None, tls_cert: str | None, tls_key: str | None, tls_ca: str | None, **values: Any
    ) -> Any:
        access = Access.of(read_tokens(token_file).shown, tls_of(tls_cert, tls_key, tls_ca))
        return function(*args, access=access, **values)

    for add in reversed((scheduler, token_file, *files)):
        with_access = add(with_access)
    return with_access  # type: ignore[return-value]


def _sources(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[str]:
    sources = [source.strip() for text in values for source in text.split(",")]
    return [check_source(source) for source in sources if source] if values else sources_of_environment()


class NotReached(NoScheduler):
    """No process listens at the address, so that the request was not sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the scheduler at `address` answered."""

    address: str
    status: int
    body: dict[str, Any]
    retry_after_s: int | None = None


def addresses_of(schedulers: Sequence[str]) -> list[str]:
    """The schedulers' addresses, the default one if no source is given; `NoScheduler` if the sources name none."""
    addresses = asyncio.run(resolve(schedulers or [DEFAULT_SCHEDULER]))
    if not addresses:
        raise NoScheduler(f"no scheduler is named in {', '.join(schedulers)}")
    return list(addresses)


def nobody_answers(schedulers: Sequence[str], errors: Iterable[NoScheduler]) -> NoScheduler:
    """The error to raise when none of the schedulers answered."""
    hint = "" if schedulers else f"; name one with --scheduler or {SCHEDULERS_VARIABLE}"
    return NoScheduler("; ".join(map(str, errors)) + hint)


def ask_all(
    schedulers: Sequence[str], access: Access, method: str, path: str, allowed: Container[int] = NOT_THERE
) -> list[Answer]:
    """The answers of all schedulers that answer; the others are named on stderr.

    Raises `NoScheduler` if none answers, and `SparrowError` if one refuses with a status that is not `allowed`.
    """
    addresses = addresses_of(schedulers)
    with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
        answers = list(threads.map(lambda address: _ask_or_error(address, access, method, path, allowed), addresses))
    silent = [answer for answer in answers if isinstance(answer, NoScheduler)]
    if len(silent) == len(answers):
        raise nobody_answers(schedulers, silent)
    for error in silent:
        click.echo(f"sparrow: {printable(str(error))}", err=True)
    return [answer for answer in answers if isinstance(answer, Answer)]


def _ask_or_error(
    address: str, access: Access, method: str, path: str, allowed: Container[int]
) -> Answer | NoScheduler:
    try:
        return ask(address, access, method, path, allowed=allowed)
    except NoScheduler as error:
        return error


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
def following(address: str, access: Access, path: str) -> Iterator[Iterator[bytes] | None]:
    """The lines of an answer as they come, however long that takes; None if the path is not known (404).

    `NoScheduler` if there is no answer, `SparrowError` if it is a refusal; the lines raise `LinkError` if they break
    off.
    """
    with opened(address, access, "GET", path, patient=True) as response:
        if response.status == http.HTTPStatus.OK:
            yield _read_lines(address, response)
            return
        with _raising_no_scheduler(address, "scheduler", access):
            data = response.read()
        _checked_body(address, response.status, data, NOT_THERE, "scheduler")
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
