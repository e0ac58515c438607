"""Whether the daemon of this container lives: exit code 0 or 1. Standard library alone, as it runs every ten seconds.

It asks /livez at SPARROW_PORT, or at the ports that daemons have by default. Of a daemon with mutual TLS, which tells
nobody without a certificate anything, it only sees that the port is open.
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
from collections.abc import Sequence

PORTS = (20503, 20504)
TIMEOUT_S = 3.0


def why_not(port: int, *, tls: bool) -> str:
    """Why the daemon at this port does not count as living; empty if it does."""
    try:
        if tls:
            socket.create_connection(("127.0.0.1", port), TIMEOUT_S).close()
            return ""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", "/livez")
            status = connection.getresponse().status
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        return f"port {port}: {error}"
    return "" if status == http.HTTPStatus.OK else f"port {port}: status {status}"


def main(environment: dict[str, str]) -> int:
    """The exit code; on standard output the reasons."""
    given = environment.get("SPARROW_PORT", "")
    ports: Sequence[int] = [int(given)] if given else PORTS
    reasons = [why_not(port, tls=bool(environment.get("SPARROW_TLS_CERT"))) for port in ports]
    if all(reasons):
        sys.stdout.write("; ".join(reasons) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(dict(os.environ)))
