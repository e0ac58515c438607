"""A question to a daemon over HTTP, for whoever may wait for the answer."""

from __future__ import annotations

from http.client import HTTPException
from typing import Any

import orjson

from sparrow_py.access.credentials import Access
from sparrow_py.errors import ClusterError


def http_get_json(address: str, path: str, timeout_s: float = 10.0, access: Access | None = None) -> Any:
    """As `http_get_text`, decoded."""
    return orjson.loads(http_get_text(address, path, timeout_s, access))


def http_get_text(address: str, path: str, timeout_s: float = 10.0, access: Access | None = None) -> str:
    """What a daemon answers, who is reached as the environment says unless `access` does; `ClusterError` if it does
    not."""
    status, body = http_answer(address, path, timeout_s, access)
    if status != 200:
        raise ClusterError(f"{address}{path} answered {status}: {body[:200]!r}")
    return body.decode()


def http_answer(
    address: str, path: str, timeout_s: float = 10.0, access: Access | None = None, body: bytes | None = None
) -> tuple[int, bytes]:
    """As `http_get_text`: the answer's status and body, whatever the status. With a body, of JSON, it is a POST."""
    access = Access.of_client() if access is None else access
    connection = access.http_connection(address, timeout_s)
    try:
        if body is None:
            connection.request("GET", path, headers=access.headers())
        else:
            headers = access.headers() | {"Content-Type": "application/json"}
            connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, HTTPException) as error:
        raise ClusterError(f"{address} does not answer: {error}") from None
    finally:
        connection.close()
