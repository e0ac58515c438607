"""The node monitor's OpenAPI document."""

from __future__ import annotations

from typing import Any

from node_monitor.http.views import BlobStored, LeaveRequest, NodeList, StateRequest
from sparrow_py.http.openapi import answer, content, document, errors, operation, path_parameter

_BYTES = {"application/octet-stream": {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}}
_HASH = path_parameter("hash", "The SHA-256 of the blob's bytes, in lower-case hexadecimal.", pattern="^[0-9a-f]{64}$")
_MALFORMED = "The hash is malformed."
_ABSENT = "The blob is not here, or not any more."
_UNREADABLE = "The blob is here and cannot be read now: the node has run out of file descriptors, say."


_MISTAKES = {
    400: "A field is wrong: the error names it.",
    404: "No such node is in this process.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is not said to be JSON, or is compressed.",
}


def node_monitor_document() -> dict[str, Any]:
    """All paths, and the structs of their bodies and answers."""
    paths = {
        "/v1/nodes": {"get": _nodes()},
        "/v1/nodes/state": {"post": _change_state()},
        "/v1/nodes/leave": {"post": _leave()},
        "/v1/blobs/{hash}": {"get": _get_blob(), "head": _head_blob(), "put": _put_blob()},
    }
    description = "The nodes of a process, and large inputs and results."
    return document("Sparrow node monitor", description, paths, (NodeList, StateRequest, LeaveRequest, BlobStored))


def _nodes() -> dict[str, Any]:
    return operation("listNodes", "The nodes of this process", {"200": answer("The nodes.", NodeList)})


def _change_state() -> dict[str, Any]:
    return operation(
        "changeState",
        "Cordon nodes, drain them, or have them take part again",
        {
            "200": answer("The nodes that were meant. A draining node that is cordoned goes on draining.", NodeList),
            **errors(_MISTAKES),
        },
        description="A cordoned node gets no further reservations and serves those that it has; a draining one hands "
        "back all that has not started.",
        body={"required": True, "content": content(StateRequest)},
    )


def _leave() -> dict[str, Any]:
    return operation(
        "leave",
        "Have a node that has nothing to do drain, and its process end",
        {
            "202": answer("It drains, and ends with exit code 0.", NodeList),
            **errors(_MISTAKES | {409: "It has something to do, jobs need data that lies there, or it is not alone."}),
        },
        body={"required": True, "content": content(LeaveRequest)},
    )


def _get_blob() -> dict[str, Any]:
    return operation(
        "getBlob",
        "Fetch a blob, or a range of it",
        {
            "200": {"description": "The whole blob.", "content": _BYTES},
            "206": {"description": "The range that was asked for.", "content": _BYTES},
            "304": answer("The blob is as the request's header says."),
            "412": answer("The blob is not as the request's header demands."),
            "416": answer("The blob has no such range."),
            **errors({400: _MALFORMED, 404: _ABSENT, 503: _UNREADABLE}),
        },
        parameters=[_HASH],
    )


def _head_blob() -> dict[str, Any]:
    absent = {"304": "The blob is as the request's header says.", "400": _MALFORMED, "404": _ABSENT, "503": _UNREADABLE}
    built = operation(
        "headBlob",
        "Whether a blob is here, and its size",
        {"200": answer("The blob is here."), **{status: answer(text) for status, text in absent.items()}},
        parameters=[_HASH],
    )
    # An answer to HEAD has no body.
    built["responses"] = {status: {"description": r["description"]} for status, r in built["responses"].items()}
    return built


def _put_blob() -> dict[str, Any]:
    return operation(
        "putBlob",
        "Upload a blob",
        {
            "201": answer("The blob is here now.", BlobStored),
            "200": answer("The blob was here before.", BlobStored),
            **errors(
                {
                    400: f"{_MALFORMED[:-1]}, or the connection ended before the body did.",
                    408: "The body did not go on.",
                    411: "Content-Length is missing.",
                    413: "The blob is larger than all that may be kept.",
                    415: "The body is compressed.",
                    422: "The body is not the blob of this hash.",
                    507: "There is no room now.",
                }
            ),
        },
        parameters=[_HASH],
        body={"required": True, "content": _BYTES},
    )
