"""What a client or a cluster is given for mutual TLS."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TLS:
    """The three files of mutual TLS, in PEM.

    cert: path of our certificate, with those between it and the authority.
    key: path of its private key.
    ca: path of the certificates of the authorities that peers' certificates must come from.
    """

    cert: str
    key: str
    ca: str
