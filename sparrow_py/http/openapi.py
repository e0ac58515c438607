"""Building blocks of the daemons' OpenAPI documents (`/openapi.json`), and the routes that all daemons have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson
from aiohttp import web

from sparrow_py.http.http_api import JSON_TYPE, ErrorAnswer

OPENAPI_VERSION = "3.1.0"
API_VERSION = "1"
DOCUMENT_PATH = "/openapi.json"
SCHEMA_REF = "#/components/schemas/{name}"

Json = dict[str, Any]


def ref(kind: type) -> Json:
    """A reference to a struct's schema."""
    return {"$ref": SCHEMA_REF.format(name=kind.__name__)}


def content(kind: type) -> Json:
    """A JSON body that is this struct."""
    return {JSON_TYPE: {"schema": ref(kind)}}


def answer(description: str, kind: type | None = None, **more: Any) -> Json:
    """A response, of JSON if `kind` is given; `more` are fields of OpenAPI's Response."""
    return {"description": description, **({"content": content(kind)} if kind else {}), **more}


def text_answer(description: str) -> Json:
    """A response of plain text."""
    return {"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}}


def errors(descriptions: Mapping[int, str]) -> dict[str, Json]:
    """Error responses by status. Those that say when to try again have `Retry-After`."""
    return {str(status): _error(status, text) for status, text in descriptions.items()}


def _error(status: int, description: str) -> Json:
    if status not in (429, 503):
        return answer(description, ErrorAnswer)
    retry = {"description": "Seconds after which to try again.", "schema": {"type": "integer", "minimum": 1}}
    return answer(description, ErrorAnswer, headers={"Retry-After": retry})


def path_parameter(name: str, description: str, **schema: Any) -> Json:
    """A part of the path."""
    schema = {"type": "string", "minLength": 1, **schema}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def query_parameter(name: str, description: str, schema: Json) -> Json:
    """A part of the query that may be left out."""
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


FORBIDDEN = "It is from a web page, or is not for the user or role of the token or certificate."


def operation(
    operation_id: str,
    summary: str,
    responses: Mapping[str, Json],
    *,
    description: str = "",
    parameters: Iterable[Json] = (),
    body: Json | None = None,
) -> Json:
    """One method of a path. All need a token, if the daemon has any, and none is for web pages."""
    refusals = errors(
        {
            401: "The token is missing or wrong.",
            403: FORBIDDEN,
            421: "Its Host may be anybody's: it is none of those that the daemon knows to be its own.",
        }
    )
    built: Json = {"operationId": operation_id, "summary": summary}
    if description:
        built["description"] = description
    if parameters:
        built["parameters"] = list(parameters)
    if body is not None:
        built["requestBody"] = body
    built["responses"] = {**responses, **refusals}
    return built


def public(built: Json) -> Json:
    """The same operation, for which no token is asked."""
    responses = {status: response for status, response in built["responses"].items() if status != "401"}
    return {**built, "responses": responses, "security": []}


COMMON_PATHS: dict[str, Json] = {
    "/livez": {"get": public(operation("livez", "Whether the process lives", {"200": text_answer("It does.")}))},
    "/readyz": {
        "get": public(
            operation(
                "readyz",
                "Whether it can work",
                {"200": text_answer("It can."), "503": text_answer("Why it cannot.")},
            )
        )
    },
    "/metrics": {"get": operation("metrics", "Metrics for Prometheus", {"200": text_answer("Metrics as text.")})},
    DOCUMENT_PATH: {
        "get": operation(
            "openapi",
            "This document",
            {"200": {"description": "OpenAPI.", "content": {JSON_TYPE: {"schema": {"type": "object"}}}}},
        )
    },
}
"""What all daemons answer."""


def document(title: str, description: str, paths: Mapping[str, Json], structs: Iterable[type]) -> Json:
    """The document of a daemon with these paths besides those of all; `structs` are what paths refer to."""
    _, schemas = msgspec.json.schema_components([*structs, ErrorAnswer], ref_template=SCHEMA_REF)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": title, "version": API_VERSION, "description": description},
        "paths": {**COMMON_PATHS, **paths},
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The cluster's secret or a user's, if it has any.",
                }
            },
        },
        "security": [{}, {"token": []}],
    }


def add_document(app: web.Application, built: Json) -> None:
    """Serve the document."""
    encoded = orjson.dumps(built)

    async def get(_: web.Request) -> web.Response:
        return web.Response(body=encoded, content_type=JSON_TYPE)

    app.router.add_get(DOCUMENT_PATH, get, allow_head=False)
