"""Which schedulers a subcommand talks to, and how it asks them over HTTP."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote

import click

from frontends.daemon_http import NOT_THERE, Answer, ask
from sparrow_py.access.credentials import Access
from sparrow_py.access.secret_files import TLS_OPTIONS, read_tokens, tls_of
from sparrow_py.errors import NoScheduler, SparrowError
from sparrow_py.job import check_name
from sparrow_py.logs.printable import printable
from sparrow_py.wire.addresses import SCHEDULERS_VARIABLE, check_source, sources_of_environment
from sparrow_py.wire.resolution import resolve

DEFAULT_SCHEDULER = "127.0.0.1:20503"
ASKED_AT_ONCE = 16

TLS_HELP = ("PEM file with our certificate, for mutual TLS.", "Its key.", "The authorities of daemons' certificates.")

F = TypeVar("F", bound=Callable[..., Any])


def connection_options(function: F) -> F:
    """Add `--scheduler`, which arrives as `schedulers`, and `--token-file`, `--tls-cert`, `--tls-key` and `--tls-ca`,
    which arrive as `access`."""

    @functools.wraps(function)
    def with_access(
        *args: Any, token_file: str | None, tls_cert: str | None, tls_key: str | None, tls_ca: str | None, **values: Any
    ) -> Any:
        access = Access.of(read_tokens(token_file).shown, tls_of(tls_cert, tls_key, tls_ca))
        return function(*args, access=access, **values)

    return connection_as_given(with_access)  # type: ignore[return-value]


def connection_as_given(function: F) -> F:
    """The same options, but all arrive by their own names: of the files nothing has been read."""
    scheduler = click.option(
        "-s",
        "--scheduler",
        "schedulers",
        metavar="ADDR",
        multiple=True,
        callback=_sources,
        help="A scheduler: host:port, file:PATH, dns:NAME:PORT or unix:PATH; may be repeated. "
        f"Default: {SCHEDULERS_VARIABLE}.",
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
    for add in reversed((scheduler, token_file, *files)):
        function = add(function)
    return function


def _sources(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[str]:
    if not values:
        return sources_of_environment()
    sources = [source for text in values for part in text.split(",") if (source := part.strip())]
    return [check_source(source, "scheduler") for source in sources or values[:1]]


def addresses_of(schedulers: Sequence[str]) -> list[str]:
    """The schedulers' addresses, the default one if no source is given; `NoScheduler` if the sources name none."""
    addresses = asyncio.run(resolve(schedulers or [DEFAULT_SCHEDULER]))
    if not addresses:
        raise NoScheduler(f"no scheduler is named in {', '.join(schedulers)}")
    return list(addresses)


def no_answer(schedulers: Sequence[str], errors: Sequence[SparrowError]) -> SparrowError:
    """The error to raise when each scheduler refused, or did not answer."""
    silent = [error for error in errors if isinstance(error, NoScheduler)]
    if len(silent) == len(errors):
        return nobody_answers(schedulers, silent)
    return SparrowError("; ".join(map(str, errors)))


def nobody_answers(schedulers: Sequence[str], errors: Iterable[NoScheduler]) -> NoScheduler:
    """The error to raise when none of the schedulers answered."""
    hint = "" if schedulers else f"; name one with --scheduler or {SCHEDULERS_VARIABLE}"
    return NoScheduler("; ".join(map(str, errors)) + hint)


def ask_all(
    schedulers: Sequence[str], access: Access, method: str, path: str, allowed: Container[int] = NOT_THERE
) -> list[Answer]:
    """The answers of all schedulers that answer; of the others stderr says why they do not. One that refuses with a
    status that is not `allowed` is one of the others.

    Raises `NoScheduler` if nothing is at any of the addresses, and `SparrowError` if what is there only refuses.
    """
    addresses = addresses_of(schedulers)
    with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
        answers = list(threads.map(lambda address: _ask_or_error(address, access, method, path, allowed), addresses))
    errors = [answer for answer in answers if isinstance(answer, SparrowError)]
    if len(errors) == len(answers):
        raise no_answer(schedulers, errors)
    for error in errors:
        click.echo(f"sparrow: {printable(str(error))}", err=True)
    return [answer for answer in answers if isinstance(answer, Answer)]


def ask_of_job(schedulers: Sequence[str], access: Access, job_id: str, what: str) -> list[Any]:
    """What the schedulers that know the job answer of it at `/v1/jobs/JOB_ID/WHAT`. `InvalidRequest` if the id cannot
    be one; else raises as `ask_all`."""
    check_name("job id", job_id, empty=False)
    answers = ask_all(schedulers, access, "GET", f"/v1/jobs/{quote(job_id, safe='')}/{what}")
    return [answer.body for answer in answers if answer.status == 200]


def _ask_or_error(
    address: str, access: Access, method: str, path: str, allowed: Container[int]
) -> Answer | SparrowError:
    try:
        return ask(address, access, method, path, allowed=allowed)
    except SparrowError as error:
        return error
