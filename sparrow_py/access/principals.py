"""Who may do what: principals, and the tokens and certificates that prove them. Pure: no files, no sockets.

A *principal* has a role. `cluster` is the operator's and the daemons': it may dial as a node, change nodes' states,
and do what any user may. `client` is one user's: it may submit, watch and cancel that user's jobs.

A token file has a token per line, `cluster SECRET` or `client USER SECRET`; blank lines and lines that begin with # say
nothing. Several of one role and user are all valid, so that a secret can be replaced while it is in use. A file of one
word is the cluster's secret. A secret may be given as `sha256:` and the hash of it in hexadecimal: enough to check it,
and of no use to who reads the file.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparrow_py.errors import AccessDenied, InvalidOption, InvalidRequest
from sparrow_py.job import check_name

CLUSTER, CLIENT = "cluster", "client"
"""The roles."""
SECRET_CHARS_MIN = 32
SECRET_CHARS_MAX = 256
TOKENS_MAX = 1000
"""Tokens that are valid at a time: each is compared with what a request brings."""
TOKEN_FILE = "token_file"
"""The option that names the file."""
TOKEN_FILE_BYTES_MAX = 1 << 20
HASHED = "sha256:"
"""What comes before the hash of a secret that is given by its hash."""
BLOB_KEY = "blob-"
SECRET_ALLOWED = f"a secret of {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX} visible ASCII characters without blanks"
LINE_ALLOWED = f"cluster SECRET, or client USER SECRET, with {SECRET_ALLOWED}"

_is_secret = re.compile(f"[!-~]{{{SECRET_CHARS_MIN},{SECRET_CHARS_MAX}}}").fullmatch
_is_hash = re.compile("[0-9a-f]{64}").fullmatch


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `user` is empty for the role `cluster`, which may act for any user."""

    role: str
    user: str = ""
    digest: bytes = field(default=b"", repr=False)
    """Of the token that proved it; empty if a certificate did, or if nothing was asked for."""

    def may_act_for(self, user: str) -> bool:
        """Whether jobs of this user are its own to submit, see and cancel."""
        return self.role == CLUSTER or user == self.user

    def __str__(self) -> str:
        return f"role client, user {self.user!r}" if self.role == CLIENT else f"role {self.role}"


ANYBODY = Principal(CLUSTER)
"""Who asks where neither tokens nor certificates are asked for."""


@dataclass(frozen=True, slots=True)
class Token:
    """A principal and the secret that proves it; the secret is empty if only its hash is known here."""

    principal: Principal
    secret: str = field(default="", repr=False)


class Tokens:
    """The tokens that are valid."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        known = tuple(tokens)
        self._principals = tuple(token.principal for token in known)
        self._valid = frozenset(self._principals)
        self._cluster_secrets = tuple(token.secret for token in known if token.secret and _is_cluster(token))
        self.shown = next((token.secret for token in known if token.secret), "")
        """What a client shows: the first token whose secret is known."""
        self.dialling = self._cluster_secrets[0] if self._cluster_secrets else ""
        """What a daemon shows when it dials: the first of the cluster's whose secret is known."""

    def __len__(self) -> int:
        return len(self._principals)

    def __repr__(self) -> str:
        return f"Tokens of {', '.join(map(str, self._principals)) or 'nobody'}"

    def find(self, secret: str) -> Principal | None:
        """Whose secret this is. The time that takes says nothing of it: every token is compared, by its hash."""
        digest = digest_of(secret)
        found = None
        for principal in self._principals:
            if hmac.compare_digest(digest, principal.digest):
                found = principal
        return found

    def stands(self, principal: Principal) -> bool:
        """Whether what proved the principal is still valid."""
        return not principal.digest or principal in self._valid

    def opens_blob(self, key: str, hash: str) -> bool:
        """Whether this is the `blob_key` of one of the cluster's secrets."""
        given = key.encode("utf-8", "surrogateescape")
        good = [hmac.compare_digest(given, blob_key(secret, hash).encode()) for secret in self._cluster_secrets]
        return any(good)


def _is_cluster(token: Token) -> bool:
    return token.principal.role == CLUSTER


def digest_of(secret: str) -> bytes:
    """What is compared in a secret's place."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def blob_key(secret: str, hash: str) -> str:
    """What a node shows to fetch this one blob. Where to fetch it from is what a client said, and may be anybody: who
    is shown the key can fetch a blob whose hash it knows already, and learns nothing of the secret."""
    return BLOB_KEY + hmac.new(secret.encode(), b"sparrow blob " + hash.encode(), "sha256").hexdigest()


# ---- the token file --------------------------------------------------------------------------


def parse_tokens(text: str, path: str = "the file") -> Tokens:
    """The tokens of a file. `InvalidOption` names its path and the line that is wrong, and shows nothing of it."""
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not lines:
        raise InvalidOption(TOKEN_FILE, f"{path}, without a secret", f"one secret, or lines of {LINE_ALLOWED}")
    if len(lines) > TOKENS_MAX:
        raise InvalidOption(TOKEN_FILE, f"{path}, with {len(lines)} tokens", f"at most {TOKENS_MAX}")
    if len(lines) == 1 and len(lines[0][1].split()) == 1:
        return Tokens([_token(CLUSTER, "", lines[0][1], TOKEN_FILE, path)])
    tokens: list[Token] = []
    seen: dict[bytes, int] = {}
    for number, line in lines:
        token = _parse_line(line, f"{path}, line {number}")
        before = seen.setdefault(token.principal.digest, number)
        if before != number:
            raise InvalidOption(TOKEN_FILE, f"{path}, line {number}", f"another secret than that of line {before}")
        tokens.append(token)
    return Tokens(tokens)


def _parse_line(line: str, where: str) -> Token:
    role, *words = line.split()
    if role == CLUSTER and len(words) == 1:
        return _token(role, "", words[0], TOKEN_FILE, where)
    if role == CLIENT and len(words) > 1:
        # A user's name may have blanks, as it is: all between the first word and the last.
        user = line[len(CLIENT) : -len(words[-1])].strip()
        try:
            check_name("user", user, empty=False)
        except InvalidRequest as error:
            raise InvalidOption(TOKEN_FILE, where, f"as user {error.allowed}") from None
        return _token(role, user, words[-1], TOKEN_FILE, where)
    raise InvalidOption(TOKEN_FILE, where, LINE_ALLOWED)


def check_secret(source: str, secret: str) -> Tokens:
    """The cluster's or a client's secret, given as it is; `InvalidOption` if it cannot be one."""
    return Tokens([_token(CLUSTER, "", secret, source, "…")])


def _token(role: str, user: str, secret: str, source: str, where: str) -> Token:
    if secret.startswith(HASHED):
        hexadecimal = secret[len(HASHED) :]
        if _is_hash(hexadecimal) is None:
            raise InvalidOption(source, where, f"64 characters of 0123456789abcdef after {HASHED}")
        return Token(Principal(role, user, bytes.fromhex(hexadecimal)))
    if _is_secret(secret) is None:
        raise InvalidOption(source, where, SECRET_ALLOWED)
    return Token(Principal(role, user, digest_of(secret)), secret)


# ---- certificates ----------------------------------------------------------------------------


def principal_of_certificate(certificate: Mapping[str, Any]) -> Principal:
    """Who a certificate, which an authority of ours has signed, says its owner is (as `ssl` has it): organisation
    (O) `cluster`, or organisation `client` and the user as common name (CN). `AccessDenied` if it says neither."""
    names: dict[str, list[str]] = {}
    for part in certificate.get("subject", ()):
        for key, value in part:
            names.setdefault(key, []).append(value)
    organisation, common = names.get("organizationName", []), names.get("commonName", [])
    if organisation == [CLUSTER]:
        return Principal(CLUSTER)
    if organisation == [CLIENT] and len(common) == 1:
        try:
            check_name("the certificate's CN", common[0], empty=False)
        except InvalidRequest as error:
            raise AccessDenied(str(error)) from None
        return Principal(CLIENT, common[0])
    raise AccessDenied(
        f"the certificate's subject has O {organisation} and CN {common}: "
        "O must be cluster, or client with the user's name as CN"
    )


# ---- what a principal may be -----------------------------------------------------------------


def check_link(principal: Principal, role: str, user: str, *, stated: bool) -> str:
    """The user of a link on which this principal says Hello; `AccessDenied` if it may not be what it says it is.

    `stated`: whether the user was named by somebody, rather than taken from the system.
    """
    if principal.role == CLUSTER:
        return user
    if role != CLIENT:
        raise AccessDenied(f"to link as a {role} takes a token or certificate of role cluster; this is of {principal}")
    return own_user(principal, user if stated else "")


def own_user(principal: Principal, user: str) -> str:
    """The user for whom a client's principal submits, having said that it is `user`, or nothing."""
    if user and not principal.may_act_for(user):
        raise AccessDenied(f"user: {user!r} is not the user of this token or certificate, which is {principal.user!r}")
    return user or principal.user
