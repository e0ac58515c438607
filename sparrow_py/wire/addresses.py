"""Where the schedulers are: addresses, a file that is re-read, or a DNS name with many addresses.

A source is one of
    host:port            that address
    file:PATH            one address per line, # starts a comment; re-read while the daemon runs
    dns:NAME:PORT        every address that the name resolves to; re-resolved while the daemon runs
    unix:PATH            the Unix socket at this absolute path, on this machine
"""

from __future__ import annotations

import os

from sparrow_py.access.unix_addresses import UNIX, UNIX_PATH_BYTES_MAX, unix_path
from sparrow_py.constraints import is_unicode
from sparrow_py.errors import InvalidOption, InvalidRequest

SCHEDULERS_VARIABLE = "SPARROW_SCHEDULER"
"""Of the environment: sources, separated by commas, for clients and commands that are given none."""


FORMS = "host:port, file:PATH, dns:NAME:PORT or unix:PATH, with a port from 1 to 65535"


def check_unix_address(address: str) -> str:
    """The address, if it is of a Unix socket; `InvalidRequest` if not."""
    path = unix_path(address)
    is_path = path.startswith("/") and "\0" not in path and is_unicode(path)
    if not is_path or len(path.encode()) > UNIX_PATH_BYTES_MAX:
        allowed = f"unix: and an absolute path of at most {UNIX_PATH_BYTES_MAX} bytes"
        raise InvalidRequest("scheduler address", address, allowed)
    return address


def check_address(address: str) -> str:
    """The address, if it is host:port (an IPv6 host in brackets); `InvalidRequest` if not.

    One of a Unix socket is none: peers name addresses that are asked for data, and our sockets are no business of
    theirs.
    """
    host, colon, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535
    if not (colon and host and is_port and address.isprintable()) or any(c in address for c in " /@#?\\"):
        raise InvalidRequest("scheduler address", address, FORMS)
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InvalidRequest("scheduler address", address, "an IPv6 host in brackets, as in [::1]:20503")
    return address


def check_source(source: str, option: str = "scheduler address") -> str:
    """The source, if it is of one of these forms; `InvalidOption`, which names the option, if not."""
    try:
        _check_form(source)
    except InvalidRequest as error:
        raise InvalidOption(option, source, error.allowed) from None
    return source


def _check_form(source: str) -> None:
    if source.startswith("dns:"):
        check_address(source[4:])
    elif source.startswith(UNIX):
        check_unix_address(source)
    elif source.startswith("file:"):
        if not source[5:] or "\0" in source or not _is_path(source[5:]):
            raise InvalidRequest("scheduler address", source, "a path after file:")
    else:
        check_address(source)


def _is_path(path: str) -> bool:
    """Whether a file may have this path: with lone surrogates that stand for no byte none has."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def sources_of_environment() -> list[str]:
    """The sources that `SCHEDULERS_VARIABLE` names; `InvalidOption` if one is none."""
    given = [source.strip() for source in os.environ.get(SCHEDULERS_VARIABLE, "").split(",")]
    return [check_source(source, SCHEDULERS_VARIABLE) for source in given if source]
