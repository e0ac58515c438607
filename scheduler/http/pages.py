"""The dashboard's files, and who may look: a cookie stands for the token that a browser was asked for.

The page and its files are the same for everybody and say nothing of the cluster. What they show comes from the API, for
which a browser shows a token once (`/v1/session`) and then a cookie, which opens what is looked at and nothing else.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from sparrow_py.access.credentials import Credentials
from sparrow_py.access.principals import Principal
from sparrow_py.access.view_sessions import SESSION_S_MAX, ViewSessions
from sparrow_py.daemon.http_app import principal_of
from sparrow_py.http import http_guard
from sparrow_py.http.http_api import flag

FILES = {
    "/": ("index.html", "text/html"),
    "/dashboard/dashboard.css": ("dashboard.css", "text/css"),
    "/dashboard/dashboard.js": ("dashboard.js", "text/javascript"),
    "/dashboard/timeline.js": ("timeline.js", "text/javascript"),
    "/dashboard/uplot.js": ("uPlot.iife.min.js", "text/javascript"),
    "/dashboard/uplot.css": ("uPlot.min.css", "text/css"),
    "/dashboard/uplot-licence.txt": ("uPlot-LICENSE.txt", "text/plain"),
}
"""Path to the file beside this module, and its type."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load and do: nothing of other hosts, and nothing that stands in names of jobs."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SESSION_PATH = "/v1/session"
_is_looked_at = re.compile(
    rf"{SESSION_PATH}|/v1/(scheduler|schedulers|nodes|history|state|events|jobs(/[^/]+(/timeline|/explain)?)?)"
).fullmatch
_DIRECTORY = Path(__file__).parent / "dashboard"
_BY_COOKIE = web.RequestKey("by_cookie", bool)
"""What a request has whose token proves nobody: who knows no more than a session may not begin another one."""


class DashboardPages:
    """See the module's docstring; for `make_app`."""

    page = "/"
    files = frozenset(FILES)

    def __init__(self, credentials: Credentials, clock: Callable[[], float], *, encrypted: bool) -> None:
        """encrypted: whether connections are, so that the cookie is for such alone."""
        self._credentials = credentials
        self.sessions = ViewSessions(lambda: secrets.token_urlsafe(32), self._stands)
        self._clock = clock
        self._encrypted = encrypted

    def _stands(self, principal: Principal) -> bool:
        return self._credentials.tokens.stands(principal)  # Others, once they were read again.

    def add_routes(self, app: web.Application) -> None:
        """Serve the files, and the session."""
        for path, (name, kind) in FILES.items():
            app.router.add_get(path, _sender((_DIRECTORY / name).read_bytes(), kind), allow_head=False)
        app.router.add_get(SESSION_PATH, self.session, allow_head=False)

    def looker(self, request: web.Request) -> Principal | None:
        """See `http_app.Pages`."""
        if request.method != "GET" or _is_looked_at(request.path) is None:
            return None
        request[_BY_COOKIE] = True
        return self.sessions.principal(request.cookies.get(self._cookie(request), ""), self._clock())

    async def session(self, request: web.Request) -> web.Response:
        """`GET /v1/session`: begin a session for the token that is shown, or `?end=true`, end it. It is a GET since
        browsers say of all else where it comes from, which this daemon refuses; the token is in a header, which other
        pages cannot add."""
        response = web.Response(status=HTTPStatus.NO_CONTENT)
        name = self._cookie(request)
        if flag(request, "end"):
            self.sessions.end(request.cookies.get(name, ""))
            response.del_cookie(name, path="/v1/")
        elif self._credentials.tokens and "Authorization" in request.headers and _BY_COOKIE not in request:
            session = self.sessions.begin(principal_of(request), self._clock())
            response.set_cookie(
                name, session, path="/v1/", max_age=int(SESSION_S_MAX), httponly=True, samesite="Strict",
                secure=self._encrypted,
            )  # fmt: skip
        return response

    def _cookie(self, request: web.Request) -> str:
        """Browsers keep cookies by host, whatever the port: two schedulers of one host have two."""
        port = http_guard.port_of(request.headers.get("Host", ""))  # The guard has refused what is none.
        return f"sparrow_view_{port or ''}"


def _sender(body: bytes, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def send(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)

    return send
