"""What the HTTP APIs of all daemons have in common: JSON in and out, errors of one shape."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec
import orjson
from aiohttp import web

from sparrow_py.errors import InvalidRequest, shown
from sparrow_py.limits.seats import NoSeat

NO_SEAT_RETRY_S = 1.0
"""When to try again if all seats are taken that one may have."""
BODY_TIMEOUT_S = 30.0
"""A body must have come within this time."""
JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"


class ErrorDetail(msgspec.Struct, omit_defaults=True):
    """What went wrong. `field` names what is wrong with the request, if one field is."""

    message: str
    field: str = ""


class ErrorAnswer(msgspec.Struct):
    """The one shape that all errors have."""

    error: ErrorDetail


class ApiError(Exception):
    """A request is answered with this status; `retry_after_s` says when it may do better."""

    def __init__(self, status: int, message: str, *, field: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.field = field
        self.retry_after_s = retry_after_s


def struct_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer, of a msgspec struct."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=JSON_TYPE, headers=headers)


def json_response(value: Any, status: int = 200) -> web.Response:
    """A JSON answer, of what JSON has a form for."""
    return web.Response(body=orjson.dumps(value), status=status, content_type=JSON_TYPE)


def error_response(
    status: int, message: str, *, field: str = "", headers: dict[str, str] | None = None
) -> web.Response:
    """A JSON error."""
    return struct_response(ErrorAnswer(ErrorDetail(message, field)), status, headers)


def no_seat(error: NoSeat) -> web.Response:
    """The answer to who finds no seat."""
    return error_response(503, str(error), headers={"Retry-After": str(math.ceil(NO_SEAT_RETRY_S))})


@web.middleware
async def api_middleware(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn what handlers raise into JSON errors."""
    try:
        return await handler(request)
    except InvalidRequest as error:
        return error_response(400, str(error), field=error.field)
    except NoSeat as error:
        return no_seat(error)
    except ApiError as error:
        retry = error.retry_after_s
        # The header knows whole seconds only.
        headers = None if retry is None else {"Retry-After": str(max(1, math.ceil(retry)))}
        return error_response(error.status, str(error), field=error.field, headers=headers)
    except web.HTTPNotFound:
        return error_response(404, f"{shown(request.path)} is not there; /openapi.json says what is")
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"{error.method} is not possible here; allowed: {allowed}"
        return error_response(405, message, headers={"Allow": allowed})


async def read_json_body(request: web.Request, bytes_max: int, limit: str) -> bytes:
    """The body of a request, which must say that it is JSON; `limit` names what bounds it to `bytes_max`.

    Raises `ApiError`: 415 for another type, 413 if it is larger, 408 if it does not come, 400 if it breaks off.
    """
    if request.content_type != JSON_TYPE:
        # Another type could be posted by a web page's form, without asking the browser's user.
        given = shown(request.headers.get("Content-Type", ""))
        raise ApiError(415, f"Content-Type: {given} is not valid; allowed: {JSON_TYPE}", field="Content-Type")
    if "Content-Encoding" in request.headers:
        given = shown(request.headers["Content-Encoding"])
        raise ApiError(415, f"Content-Encoding: {given} is not valid; allowed: no header", field="Content-Encoding")
    if (request.content_length or 0) > bytes_max:
        raise _too_large(f"{request.content_length} bytes", bytes_max, limit)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > bytes_max:
                    raise _too_large("more", bytes_max, limit)
    except TimeoutError:
        raise ApiError(HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {BODY_TIMEOUT_S:g} s") from None
    except (ConnectionError, web.RequestPayloadError):
        raise ApiError(400, "the connection ended before the body did") from None
    return bytes(body)


def _too_large(what: str, bytes_max: int, limit: str) -> ApiError:
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has {what}; at most {limit} = {bytes_max} bytes are taken"
    )


def flag(request: web.Request, name: str) -> bool:
    """A parameter of the query that is `true` or `false`, the default; `InvalidRequest` if it is neither."""
    given = request.query.get(name, "false")
    if given not in ("true", "false"):
        raise InvalidRequest(name, given, "true or false")
    return given == "true"


def whole(request: web.Request, name: str, low: int, high: int) -> int | None:
    """A parameter of the query that is a whole number, None if it is not given; `InvalidRequest` if it is none."""
    given = request.query.get(name)
    if given is None:
        return None
    # Longer than any number that may be: to convert thousands of digits takes long.
    number = int(given) if given.isascii() and given.isdecimal() and len(given) <= 18 else -1
    if not low <= number <= high:
        raise InvalidRequest(name, given, f"a whole number from {low} to {high}")
    return number
