"""Clusters that ask who one is: token files, certificates, and requests over HTTP with them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sparrow_py import TLS
from sparrow_py.access.credentials import Access
from tests.support.waiting import TIMEOUT_S

CLUSTER, NEXT_CLUSTER = "cluster-secret-".ljust(40, "1"), "cluster-secret-".ljust(40, "2")
ADA, BOB = "adas-secret-".ljust(40, "1"), "bobs-secret-".ljust(40, "1")


def token_file(path: Path, *lines: str) -> Path:
    """A token file with these lines, for our eyes only; one that was there is replaced in one step."""
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text("\n".join(lines) + "\n")
    return new.rename(path)


def usual_tokens(path: Path) -> Path:
    """A token of the cluster, one of ada's and one of bob's."""
    return token_file(path, f"cluster {CLUSTER}", f"client ada {ADA}", f"client bob {BOB}")


class Authority:
    """Signs certificates, into files in its directory."""

    def __init__(self, directory: Path) -> None:
        import trustme  # With a library for cryptography, which token files do not need.

        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._ca = trustme.CA(organization_name="an authority for tests")
        self.file = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(
        self,
        name: str,
        role: str,
        user: str = "-",
        *,
        host: str = "127.0.0.1",
        expired: bool = False,
        early: bool = False,
    ) -> TLS:
        """The files of one certificate of this role (O) and user (CN); valid no more, or from tomorrow on."""
        begins_days, ends_days = (-2, -1) if expired else (1, 2) if early else (-2, 1)
        now = datetime.now(UTC)
        issued = self._ca.issue_cert(
            host,
            common_name=user,
            organization_name=role,
            not_before=now + timedelta(days=begins_days),
            not_after=now + timedelta(days=ends_days),
        )
        cert, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        key.touch(0o600)
        issued.private_key_pem.write_to_path(key)
        return TLS(str(cert), str(key), str(self.file))


def tls_flags(tls: TLS) -> list[str]:
    """A daemon's flags for these files."""
    return ["--tls-cert", tls.cert, "--tls-key", tls.key, "--tls-ca", tls.ca]


def ask(
    access: Access, address: str, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    """(status, JSON) of a daemon's answer."""
    connection = access.http_connection(address, TIMEOUT_S)
    try:
        data = None if body is None else json.dumps(body)
        given = {"Content-Type": "application/json"} if data else {}
        connection.request(method, path, data, {**access.headers(), **given, **headers})
        response = connection.getresponse()
        text = response.read().decode()
        return response.status, json.loads(text) if text.startswith("{") else {"text": text}
    finally:
        connection.close()
