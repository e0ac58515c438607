"""Where the schedulers are: addresses, a file that is re-read, or a DNS name with many addresses.

A source is one of
    host:port            that address
    file:PATH            one address per line, # starts a comment; re-read while the daemon runs
    dns:NAME:PORT        every address that the name resolves to; re-resolved while the daemon runs
"""

from __future__ import annotations

import os

from sparrow_py.errors import InvalidOption, InvalidRequest

SCHEDULERS_VARIABLE = "SPARROW_SCHEDULER"
"""Of the environment: sources, separated by commas, for clients and commands that are given none."""


def check_address(address: str) -> str:
    """The address, if it is host:port (an IPv6 host in brackets); `InvalidRequest` if not."""
    host, colon, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535
    if not (colon and host and is_port and address.isprintable()) or any(c in address for c in " /@#?\\"):
        raise InvalidRequest("scheduler address", address, "host:port, file:PATH or dns:NAME:PORT")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InvalidRequest("scheduler address", address, "an IPv6 host in brackets, as in [::1]:20503")
    return address


def check_source(source: str) -> str:
    """The source, if it is of one of the three forms; `InvalidRequest` if not."""
    if source.startswith("dns:"):
        check_address(source[4:])
    elif source.startswith("file:"):
        if not source[5:] or "\0" in source:
            raise InvalidRequest("scheduler address", source, "a path after file:")
    else:
        check_address(source)
    return source


def sources_of_environment() -> list[str]:
    """The sources that `SCHEDULERS_VARIABLE` names; `InvalidOption` if one is none."""
    given = [source.strip() for source in os.environ.get(SCHEDULERS_VARIABLE, "").split(",")]
    try:
        return [check_source(source) for source in given if source]
    except InvalidRequest as error:
        raise InvalidOption(SCHEDULERS_VARIABLE, error.value, error.allowed) from None
