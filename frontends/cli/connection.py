"""Which schedulers a subcommand talks to, and how it asks them over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from sparrow_py.addresses import check_source
from sparrow_py.errors import LinkError, NoScheduler, SparrowError
from sparrow_py.options import read_token
from sparrow_py.resolution import resolve

SCHEDULERS_VARIABLE = "SPARROW_SCHEDULER"
DEFAULT_SCHEDULER = "127.0.0.1:20503"
TIMEOUT_S = 5.0
"""How long a scheduler may take to answer."""
ASKED_AT_ONCE = 16

F = TypeVar("F", bound=Callable[..., Any])


def connection_options(function: F) -> F:
    """Add `--scheduler` and `--token-file`, which arrive as `schedulers` and `token`."""
    scheduler = click.option(
        "-s",
        "--scheduler",
        "schedulers",
        metavar="ADDR",
        multiple=True,
        callback=_sources,
        help=f"A scheduler: host:port, file:PATH or dns:NAME:PORT; may be repeated. Default: {SCHEDULERS_VARIABLE}.",
    )
    token = click.option(
        "--token-file",
        "token",
        metavar="FILE",
        callback=_token,
        help="File with the cluster's secret. Default: SPARROW_TOKEN.",
    )
    return scheduler(token(function))


def _sources(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[str]:
    texts = values or (os.environ.get(SCHEDULERS_VARIABLE, ""),)
    sources = [source.strip() for text in texts for source in text.split(",")]
    return [check_source(source) for source in sources if source]


def _token(_: click.Context, __: click.Parameter, path: str | None) -> str:
    return read_token(path)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the scheduler at `address` answered."""

    address: str
    status: int
    body: dict[str, Any]


def ask_all(schedulers: Sequence[str], token: str, method: str, path: str) -> list[Answer]:
    """The answers of all schedulers that answer; the others are named on stderr.

    Raises `NoScheduler` if none answers, and `SparrowError` if one refuses.
    """
    addresses = asyncio.run(resolve(schedulers or [DEFAULT_SCHEDULER]))
    if not addresses:
        raise NoScheduler(f"no scheduler is named in {', '.join(schedulers)}")
    with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
        answers = list(threads.map(lambda address: _ask_or_error(address, token, method, path), addresses))
    silent = [answer for answer in answers if isinstance(answer, NoScheduler)]
    if len(silent) == len(answers):
        hint = "" if schedulers else f"; name one with --scheduler or {SCHEDULERS_VARIABLE}"
        raise NoScheduler("; ".join(map(str, silent)) + hint)
    for error in silent:
        click.echo(f"sparrow: {error}", err=True)
    return [answer for answer in answers if isinstance(answer, Answer)]


def _ask_or_error(address: str, token: str, method: str, path: str) -> Answer | NoScheduler:
    try:
        return ask(address, token, method, path)
    except NoScheduler as error:
        return error


def ask(address: str, token: str, method: str, path: str) -> Answer:
    """The answer of the scheduler at `address`; `NoScheduler` if there is none, `SparrowError` if it refuses."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        status, data = response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoScheduler(f"no scheduler answers at {address}: {reason}") from None
    finally:
        connection.close()
    return Answer(address, status, _body(address, status, data))


def _body(address: str, status: int, data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise LinkError(f"what answers at {address} is not a scheduler (HTTP status {status})")
    if status >= http.HTTPStatus.BAD_REQUEST and status != http.HTTPStatus.NOT_FOUND:
        raise SparrowError(f"scheduler {address} refused: {message(body) or f'HTTP status {status}'}")
    return body


def message(body: dict[str, Any]) -> str:
    """The message of an error's body; empty if it has none."""
    error = body.get("error")
    text = error.get("message") if isinstance(error, dict) else None
    return text if isinstance(text, str) else ""


def listed(answers: Iterable[Answer], key: str) -> list[tuple[str, dict[str, Any]]]:
    """The entries under `key` in all answers, each with the address of the scheduler that it is from."""
    entries = []
    for answer in answers:
        listing = answer.body.get(key)
        if not isinstance(listing, list):
            raise LinkError(f"what answers at {answer.address} is not a scheduler: its answer has no {key}")
        entries += [(answer.address, entry) for entry in listing]
    return entries
