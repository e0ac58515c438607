"""Files that nobody else may read or change, and the environment: where tokens and keys come from."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from sparrow_py.access.principals import TOKEN_FILE, TOKEN_FILE_BYTES_MAX, Tokens, check_secret, parse_tokens
from sparrow_py.auth import TLS
from sparrow_py.errors import InvalidOption

TOKEN_VARIABLE = "SPARROW_TOKEN"
TLS_OPTIONS = ("tls_cert", "tls_key", "tls_ca")


def read_tokens(path: str | None, environment: Mapping[str, str] = os.environ) -> Tokens:
    """The tokens of the file, or else the secret in SPARROW_TOKEN, or else none. `InvalidOption` says what is wrong."""
    if path is None:
        secret = environment.get(TOKEN_VARIABLE, "")
        return check_secret(TOKEN_VARIABLE, secret) if secret else Tokens()
    data = read_private(TOKEN_FILE, path, TOKEN_FILE_BYTES_MAX)
    try:
        return parse_tokens(data.decode("utf-8"), path)
    except UnicodeDecodeError:
        raise InvalidOption(TOKEN_FILE, path, "a file of text") from None


def tls_of(cert: str | None, key: str | None, ca: str | None) -> TLS | None:
    """The three files, or None if none is named; `InvalidOption` if one or two are."""
    paths = dict(zip(TLS_OPTIONS, (cert, key, ca), strict=True))
    missing = [name for name, path in paths.items() if not path]
    if len(missing) == len(paths):
        return None
    if missing:
        raise InvalidOption(
            missing[0], paths[missing[0]], f"a file: {', '.join(TLS_OPTIONS)} go together, or not at all"
        )
    return TLS(str(cert), str(key), str(ca))


def tls_of_environment(environment: Mapping[str, str] = os.environ) -> TLS | None:
    """As `tls_of`, of SPARROW_TLS_CERT, SPARROW_TLS_KEY and SPARROW_TLS_CA."""
    return tls_of(*(environment.get(f"SPARROW_{name.upper()}") for name in TLS_OPTIONS))


def check_tls_files(tls: TLS) -> None:
    """`InvalidOption` unless the key is for our eyes only, and nobody else may change the certificates."""
    os.close(open_checked("tls_key", tls.key, private=True))
    os.close(open_checked("tls_cert", tls.cert, private=False))
    os.close(open_checked("tls_ca", tls.ca, private=False))


def read_private(option: str, path: str, bytes_max: int) -> bytes:
    """What is in a file that nobody else may read; `InvalidOption` names the option and says how to mend it."""
    with open(open_checked(option, path, private=True), "rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise InvalidOption(option, path, f"a file of at most {bytes_max} bytes")
    return data


def open_checked(option: str, path: str, *, private: bool) -> int:
    """A descriptor of the file that `path` leads to, which is looked at once it is open: so it is the one that is read.

    It must be a regular file of ours or root's that nobody else may change, nor read if it is `private`. Of root's
    files the group may read: that is how Kubernetes and PostgreSQL's packages give a key to a user who is not root.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # A FIFO would wait for its writer.
    except (OSError, ValueError) as error:
        raise InvalidOption(option, path, f"a readable file ({error})") from None
    try:
        why_not = _why_unsafe(os.fstat(descriptor), path, private)
        if why_not:
            raise InvalidOption(option, path, why_not)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _why_unsafe(status: os.stat_result, path: str, private: bool) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "a regular file"
    ours = os.geteuid()
    if status.st_uid not in (ours, 0):
        return f"a file of user {ours} or of root, not of user {status.st_uid}"
    forbidden = stat.S_IWGRP | stat.S_IWOTH
    if private:
        from_root = status.st_uid == 0 and ours != 0
        forbidden |= stat.S_IRWXO | (stat.S_IXGRP if from_root else stat.S_IRWXG)
    mode = stat.S_IMODE(status.st_mode)
    if not mode & forbidden:
        return ""
    verb, mend = ("use", "go-rwx") if private else ("change", "go-w")
    return f"a file that only its owner may {verb}, not one of mode {mode:04o}; chmod {mend} {path}"
