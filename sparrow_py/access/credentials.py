"""What a process shows to those it dials, and asks of those who dial it: tokens and mutual TLS, as files say."""

from __future__ import annotations

import errno
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sparrow_py.access.principals import (
    ANYBODY,
    CLUSTER,
    Principal,
    Tokens,
    blob_key,
    check_secret,
    principal_of_certificate,
)
from sparrow_py.access.secret_files import check_tls_files, read_tokens, tls_of_environment
from sparrow_py.access.tls_handshake import handshake
from sparrow_py.access.unix_addresses import unix_path, unix_url
from sparrow_py.auth import TLS
from sparrow_py.counted import counted
from sparrow_py.errors import AccessDenied, InvalidOption
from sparrow_py.logs.sparing_log import SparingLog

if TYPE_CHECKING:
    from http.client import HTTPConnection

log = logging.getLogger("sparrow.credentials")
MISSING_OR_WRONG = "the token is missing or wrong"
refusals = SparingLog(log)
"""Of all who are refused by this process: links, requests and TLS handshakes."""
NOT_YET_VALID, HAS_EXPIRED = 9, 10
"""Of OpenSSL: X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED."""
NO_CHECK_TIME = 0x200000
"""Of OpenSSL: X509_V_FLAG_NO_CHECK_TIME. A certificate that is out of date is seen with it, and its dates."""


@dataclass(frozen=True, slots=True)
class Access:
    """How daemons are dialled: with which token and which certificate."""

    token: str = field(default="", repr=False)
    tls: TLS | None = None
    current: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False, compare=False)
    """Gives what is dialled with now, if there is TLS."""

    @classmethod
    def of(cls, token: str = "", tls: TLS | None = None) -> Access:
        """With this token and these files, which are read again once they are others; `InvalidOption` if one will not
        do now."""
        return cls(token, tls, None if tls is None else _FollowedFiles(tls).context)

    @classmethod
    def of_client(cls, token: str | None = None, tls: TLS | None = None) -> Access:
        """A client's, with what is not given from SPARROW_TOKEN, SPARROW_TLS_CERT, SPARROW_TLS_KEY, SPARROW_TLS_CA.

        `InvalidOption` for what is no token or no `TLS`; a token is not shown."""
        if token is not None and not isinstance(token, str):
            raise InvalidOption("token", type(token).__name__, "text")
        if tls is not None and not isinstance(tls, TLS):
            raise InvalidOption("tls", tls, "a sparrow_py.TLS, with the paths of its files")
        return cls.of(client_token(token), tls or tls_of_environment())

    @property
    def context(self) -> ssl.SSLContext | None:
        """What is dialled with. It is to be asked for each time, as files may be others by then."""
        return None if self.current is None else self.current()

    @property
    def ssl(self) -> ssl.SSLContext | bool:
        """aiohttp's argument of this name."""
        return True if self.current is None else self.current()

    def url(self, address: str, path: str) -> str:
        """A path of the daemon at `address` (host:port, or unix:PATH of a scheduler's socket)."""
        if socket_path := unix_path(address):
            return unix_url(socket_path, path)
        return f"http{'' if self.current is None else 's'}://{address}{path}"

    def headers(self) -> dict[str, str]:
        """The headers of a request."""
        return bearer(self.token)

    def http_connection(self, address: str, timeout_s: float) -> HTTPConnection:
        """To the daemon at `address`, for the standard library's client; not open yet."""
        import http.client

        if path := unix_path(address):
            return _unix_connection(path, timeout_s)
        if self.current is None:
            return http.client.HTTPConnection(address, timeout=timeout_s)
        return http.client.HTTPSConnection(address, timeout=timeout_s, context=self.current())

    def blob_headers(self, hash: str) -> dict[str, str]:
        """The headers of a node's request for a blob, from an address that a client named: see `blob_key`."""
        return bearer(blob_key(self.token, hash) if self.token else "")


def _unix_connection(path: str, timeout_s: float) -> HTTPConnection:
    import http.client
    import socket

    class OverUnix(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(timeout_s)
            self.sock.connect(path)

    return OverUnix("localhost", timeout=timeout_s)


OPEN = Access()
"""Without either."""


def client_token(token: str | None) -> str:
    """The token that a client was given, or that of the environment; `InvalidOption` if it cannot be one."""
    return read_tokens(None).shown if token is None else check_secret("token", token).shown


def bearer(token: str) -> dict[str, str]:
    """The header that shows a token, if there is one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


class CredentialOptions(Protocol):
    """What a daemon's options say of its credentials."""

    token_file: str | None
    tls: TLS | None
    tokens: Tokens


class Credentials:
    """A daemon's. `reload` reads the files again, and `access`, `tokens` and `server_context` are new then."""

    def __init__(self, options: CredentialOptions, *, dials: bool) -> None:
        self._dials = dials
        """Whether it shows a token to others, and so must know one."""
        self._token_file = options.token_file
        self._tls = options.tls
        self._files: list[tuple[int, ...] | None] | None = None
        """What the files of TLS were when they were taken; None before."""
        self.tokens = options.tokens
        self.server_context: ssl.SSLContext | None = None
        """What new connections are accepted with."""
        self.access = OPEN
        """What others are dialled with."""
        self._take(options.tokens)

    def _take(self, tokens: Tokens) -> None:
        if self._dials and tokens and not tokens.dialling:
            raise InvalidOption(
                "token_file", self._token_file, "a file with a secret of the cluster's, not only its hash, to dial with"
            )
        access, server, files = Access(tokens.dialling), None, None
        if self._tls is not None:
            files = _states(self._tls)
            dialled, server = client_context(self._tls), server_context(self._tls)
            self._check_certificate(self._tls, news=files != self._files)
            access = Access(tokens.dialling, self._tls, lambda: dialled)  # Which follows no files: SIGHUP says when.
        # All, or none if one will not do.
        self.tokens, self.access, self.server_context, self._files = tokens, access, server, files

    def _check_certificate(self, tls: TLS, *, news: bool) -> None:
        try:
            check_daemons_certificate(tls, dials=self._dials)
        except InvalidOption as error:
            if news:
                raise
            log.error("the certificate that is in use will not do any more: %s", error)  # Tokens are withdrawn still.

    @property
    def reloadable(self) -> bool:
        """Whether there are files to read again."""
        return self._token_file is not None or self._tls is not None

    def reload(self) -> bool:
        """Read the files again. If one will not do, that is logged, and all stays as it was."""
        try:
            self._take(self.tokens if self._token_file is None else read_tokens(self._token_file))
        except InvalidOption as error:
            log.error("tokens and certificates stay as they were: %s", error)
            return False
        log.info("tokens and certificates were read again: %s", counted(len(self.tokens), "token"))
        return True

    def principal(self, secret: str, certificate: Mapping[str, Any] | None) -> Principal:
        """Who shows this secret and certificate; `AccessDenied` if that proves nothing.

        With TLS, a certificate that none of our authorities signed has not come so far.
        """
        if self.tokens:
            found = self.tokens.find(secret)
            if found is None:
                raise AccessDenied(MISSING_OR_WRONG)
            return found
        return ANYBODY if self._tls is None else principal_of_certificate(certificate or {})


# ---- TLS -------------------------------------------------------------------------------------


class _FollowedFiles:
    """A client's. Nobody sends it a signal, so it sees for itself when its files are others."""

    def __init__(self, tls: TLS) -> None:
        self._tls = tls
        self._seen = _states(tls)  # Before they are read: what changes meanwhile is read again.
        self._context = client_context(tls)

    def context(self) -> ssl.SSLContext:
        """Of the files as they are now; or as they were, if they will not do now, which is logged once. Of any
        thread."""
        states = _states(self._tls)
        if states != self._seen:
            self._seen = states
            try:
                self._context = client_context(self._tls)
            except InvalidOption as error:
                log.error("the certificates that are shown and trusted stay as they were: %s", error)
            else:
                log.info("certificates were read again")
        return self._context


def _states(tls: TLS) -> list[tuple[int, ...] | None]:
    """What is another if a file is another, or may be read no more; None for one that is not there."""
    return [_state(path) for path in (tls.cert, tls.key, tls.ca)]


def _state(path: str) -> tuple[int, ...] | None:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    # A change of owner or mode changes the ctime alone.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def server_context(tls: TLS) -> ssl.SSLContext:
    """For connections that come: a peer must show a certificate that one of our authorities has signed."""
    context = _context(tls, ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.sslobject_class = _Accepted
    return context


def client_context(tls: TLS) -> ssl.SSLContext:
    """For connections that we make: who answers must show a daemon's certificate for the name that was dialled."""
    context = _context(tls, ssl.PROTOCOL_TLS_CLIENT)
    context.sslobject_class = _Dialled
    context.sslsocket_class = _DialledSocket
    return context


HANDSHAKE_FAILURES = {
    "HTTP_REQUEST": "a plain HTTP request",
    "WRONG_VERSION_NUMBER": "no TLS is spoken",
    "UNSUPPORTED_PROTOCOL": "TLS 1.3 is not spoken",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate was shown",
    "TLSV1_ALERT_UNKNOWN_CA": "this daemon's certificate is not accepted there, as its authority is unknown",
    "SSLV3_ALERT_BAD_CERTIFICATE": "this daemon's certificate is not accepted there",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this daemon's certificate is not accepted there, as it has expired",
}
"""In words, what OpenSSL calls the usual ones."""


class _Accepted(ssl.SSLObject):
    """Of a connection that comes: who fails to show the right certificate is heard of. Not the address: only those
    who own the connection know it."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            in_words = HANDSHAKE_FAILURES.get(reason, "")
            if isinstance(error, ssl.SSLCertVerificationError):
                in_words = f"the certificate that was shown is not accepted: {error.verify_message}"
            refusals.warning("a TLS handshake failed: %s", f"{in_words} ({reason})" if in_words else reason)
            raise


class _Dialled(ssl.SSLObject):
    """Of a connection that asyncio makes."""

    def do_handshake(self) -> None:
        super().do_handshake()
        _check_daemon(self.getpeercert())


class _DialledSocket(ssl.SSLSocket):
    """Of one that the standard library's HTTP client makes."""

    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        _check_daemon(self.getpeercert())


def _check_daemon(certificate: Mapping[str, Any] | None) -> None:
    """`SSLCertVerificationError` unless a peer's certificate, which is in order otherwise, is a daemon's: a user's,
    too, is of our authority, and may be for this address; but a user is told no other's token."""
    try:
        principal = principal_of_certificate(certificate or {})
        problem = "" if principal.role == CLUSTER else f"it is no daemon's, but of {principal}"
    except AccessDenied as denied:
        problem = f"it is no daemon's: {denied}"
    if problem:
        error = ssl.SSLCertVerificationError(1, problem)
        error.verify_message = problem
        raise error


def check_daemons_certificate(tls: TLS, *, dials: bool) -> None:
    """`InvalidOption` unless who trusts these authorities takes this certificate for a daemon's now; if it `dials`,
    also when it dials. Links that stand would hide for long that it is none."""
    try:
        _own_certificate(tls, dials=dials)
    except ssl.SSLError as error:
        option, path, why_not = _why_not_own(tls, error, dials=dials)
        ours, authority = f"a daemon's certificate of an authority in {tls.ca}", f"the authority of {tls.cert}"
        what = ours if option == "tls_cert" else authority
        raise InvalidOption(option, path, f"{what}, valid now ({why_not})") from None


def _own_certificate(tls: TLS, *, dials: bool, at_any_time: bool = False) -> Mapping[str, Any]:
    """As others see it. `ssl.SSLError` if they do not take it; whether it is for our address only they know."""
    accepting, dialling = _context(tls, ssl.PROTOCOL_TLS_SERVER), _context(tls, ssl.PROTOCOL_TLS_CLIENT)
    accepting.verify_mode = ssl.CERT_REQUIRED if dials else ssl.CERT_NONE
    dialling.check_hostname = False
    if at_any_time:
        accepting.verify_flags |= NO_CHECK_TIME
        dialling.verify_flags |= NO_CHECK_TIME
    certificate = handshake(accepting, dialling)[1] or {}
    _check_daemon(certificate)
    return certificate


def _why_not_own(tls: TLS, error: ssl.SSLError, *, dials: bool) -> tuple[str, str, str]:
    """The option and the file that will not do, and why: with the date if that is the reason."""
    if getattr(error, "verify_code", None) in (NOT_YET_VALID, HAS_EXPIRED):
        try:
            certificate = _own_certificate(tls, dials=dials, at_any_time=True)
        except ssl.SSLError as another:
            error = another
        else:
            if said := _out_of_date(certificate):
                return "tls_cert", tls.cert, said
            for authority in _context(tls, ssl.PROTOCOL_TLS_CLIENT).get_ca_certs():
                if authority["subject"] == certificate["issuer"] and (said := _out_of_date(authority)):
                    return "tls_ca", tls.ca, said
    return "tls_cert", tls.cert, getattr(error, "verify_message", "") or error.reason or str(error)


def _out_of_date(certificate: Mapping[str, Any]) -> str:
    """Since when or until when it is not valid; empty if it is."""
    now_s = time.time()
    begins_s, ends_s = (ssl.cert_time_to_seconds(certificate[name]) for name in ("notBefore", "notAfter"))
    if ends_s < now_s:
        return f"it expired on {_date(ends_s)}"
    return f"it is not valid before {_date(begins_s)}" if begins_s > now_s else ""


def _date(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_s))


def _context(tls: TLS, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    check_tls_files(tls)
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(tls.cert, tls.key, _no_password)
    except (OSError, ValueError) as error:
        raise InvalidOption("tls_cert", tls.cert, f"a certificate (PEM) and its key {tls.key} ({error})") from None
    try:
        context.load_verify_locations(tls.ca)
    except (OSError, ValueError) as error:
        raise InvalidOption("tls_ca", tls.ca, f"certificates of authorities (PEM) ({error})") from None
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted: there is nobody to ask for its password")


CERTIFICATE_REFUSED = (
    "it ended the TLS connection: the certificate of this side may have expired, or its authority not be known there"
)
CUT_OFF = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
ASKS_FOR_TLS = "it ended the connection (does it ask for TLS?)"


def tls_reason(error: BaseException, access: Access, *, cut_off: bool = False) -> str:
    """Why a connection failed, in words, if TLS may have to do with it; else empty.

    Who does not like a certificate, or does not see one, may just end the connection: `cut_off`.
    """
    cause: BaseException | None = error
    while cause is not None and not _says_why(cause):
        cause = getattr(cause, "certificate_error", None) or getattr(cause, "os_error", None) or cause.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted here: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        reason = getattr(cause, "reason", "") or str(cause)
        if "ALERT" in reason:
            said = reason.partition("ALERT_")[2].replace("_", " ").lower()
            return f"it does not accept the TLS of this side: {said}"
        if not isinstance(cause, ssl.SSLEOFError):
            return f"it does not speak TLS, or not TLS 1.3 ({reason.replace('_', ' ').lower()})"
    if cut_off or cause is not None or isinstance(error, ConnectionResetError) or _errno(error) in CUT_OFF:
        return ASKS_FOR_TLS if access.current is None else CERTIFICATE_REFUSED
    return ""


def _errno(error: BaseException) -> object:
    return getattr(error, "errno", None)  # aiohttp's have it, and inherit from OSError only.


def _says_why(error: BaseException) -> bool:
    """Whether it is one of `ssl`'s own: aiohttp has some that inherit from those and lack what they say."""
    return (
        isinstance(error, ssl.SSLError) and not hasattr(error, "certificate_error") and not hasattr(error, "os_error")
    )
