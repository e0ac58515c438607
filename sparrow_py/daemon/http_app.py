"""The HTTP application of a daemon: who asks, whether the daemon is ready, and its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, Protocol

from aiohttp import web
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sparrow_py.access import principals
from sparrow_py.access.credentials import Credentials, refusals
from sparrow_py.access.principals import ANYBODY, CLUSTER, Principal
from sparrow_py.errors import AccessDenied
from sparrow_py.http import http_guard
from sparrow_py.http.http_api import error_response

HTTP_BODY_BYTES_MAX = 1 << 20
PUBLIC_PATHS = frozenset({"/livez", "/readyz", "/link"})
"""Answered without a token; a link checks the token of its Hello itself."""
PRINCIPAL = web.RequestKey("principal", Principal)
"""Who asks: kept with each request."""
BLOB_PATH = "/v1/blobs/"
OPEN_METRICS = "application/openmetrics-text"


class Pages(Protocol):
    """Pages of the daemon's own for people, with what they show."""

    @property
    def page(self) -> str:
        """The path at which one begins, wherever the link to it is."""

    @property
    def files(self) -> Collection[str]:
        """Paths of what is the same for everybody, that of the page included: they are answered without a
        token."""

    def looker(self, request: web.Request) -> Principal | None:
        """Who looks with a browser that was shown a token before; None if that is not so, or looking is not all that is
        asked for."""


class Metrics(Collector):
    """Metrics read from a core's counters when they are scraped, so that hot paths only count."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """For prometheus-client."""
        return self._collect()


def make_app(
    daemon: Any, credentials: Credentials, collect: Callable[[bool], Iterable[Metric]], pages: Pages | None = None
) -> web.Application:
    """An HTTP application with `/livez`, `/readyz`, `/metrics`, which finds out who asks. `collect`: the metrics, and
    whether their exemplars, which name jobs, too. `pages`: if it has any."""

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        why_not = daemon.why_not_ready()
        return web.Response(text=why_not + "\n" if why_not else "ok\n", status=503 if why_not else 200)

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = _metrics_format(request.headers.get("Accept", ""))
        # Exemplars name jobs of all users; only OpenMetrics has them.
        exemplars = principal_of(request).role == CLUSTER and content_type.startswith(OPEN_METRICS)
        body = encode(Metrics(partial(collect, exemplars)))
        return web.Response(body=body, headers={"Content-Type": content_type})

    public_paths = PUBLIC_PATHS if pages is None else PUBLIC_PATHS.union(pages.files)
    authenticate = _authentication(credentials, public_paths, pages)
    app = web.Application(client_max_size=HTTP_BODY_BYTES_MAX, middlewares=[authenticate])
    # Where a token or a certificate is asked for a page of another name, which has neither, gets nowhere.
    names = None if daemon.options.guarded else daemon.options.names()
    http_guard.protect(
        app, names=names, public_paths=public_paths, holder_of=holder_of, page="" if pages is None else pages.page
    )
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


def _metrics_format(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """How the scraper wants its metrics, and the content type of that."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # It asks for a version that is no number.
        return choose_encoder("")


def _authentication(credentials: Credentials, public_paths: Collection[str], pages: Pages | None) -> Any:
    """Middleware that says who asks (`principal_of`), and refuses who does not prove to be anybody."""

    @web.middleware
    async def authenticate(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path in public_paths:
            return await handler(request)
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        try:
            principal = credentials.principal(secret if scheme == "Bearer" else "", peer_certificate(request))
        except AccessDenied as error:
            if _shows_blob_key(request, secret, credentials):
                return await handler(request)
            looker = pages.looker(request) if pages is not None else None
            if looker is not None:
                request[PRINCIPAL] = looker
                return await handler(request)
            header = "the header Authorization: Bearer TOKEN is missing or wrong"
            why_not = header if credentials.tokens else str(error)
            refusals.warning("a request from %s was refused: %s", request.remote, why_not)
            return error_response(401, why_not)
        request[PRINCIPAL] = principal
        return await handler(request)

    return authenticate


def _shows_blob_key(request: web.Request, key: str, credentials: Credentials) -> bool:
    """Whether a node asks for a blob, having been told by a client's job where it is (see `principals.blob_key`)."""
    blob = request.method == "GET" and request.path.startswith(BLOB_PATH) and key.startswith(principals.BLOB_KEY)
    return blob and credentials.tokens.opens_blob(key, request.path[len(BLOB_PATH) :])


def peer_certificate(request: web.Request) -> dict[str, Any] | None:
    """What the certificate of whoever asks says, as `ssl` has it; None without TLS."""
    certificate: dict[str, Any] | None = request.get_extra_info("peercert")
    return certificate


def principal_of(request: web.Request) -> Principal:
    """Who asks."""
    return request[PRINCIPAL]


def holder_of(request: web.Request, named: str = "") -> str:
    """Whose seats the request takes: those of its token's or certificate's user; of the user that is named, where
    neither says one; else of the address that it comes from."""
    principal = request.get(PRINCIPAL, ANYBODY)
    return principal.user or named or f"address {request.remote}"
