"""Facts about this machine, its token and its certificates."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import ssl
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from frontends.doctor.facts import Certificate, Disk, Machine, Secret
from sparrow_py.access.secret_files import TOKEN_VARIABLE, read_tokens
from sparrow_py.access.tls_handshake import handshake
from sparrow_py.auth import TLS
from sparrow_py.daemon.version import version
from sparrow_py.errors import InvalidOption
from sparrow_py.limits.open_files import UNLIMITED
from sparrow_py.wire.messages import PROTOCOL_VERSION

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
"""That of a container; elsewhere the root's, which has no limits."""


def machine(directories: Sequence[str] = ()) -> Machine:
    """This machine. `directories`: where large data lies, besides the temporary one."""
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    memory_bytes, free_bytes = _memory()
    return Machine(
        platform.python_version(),
        version(),
        PROTOCOL_VERSION,
        UNLIMITED if files_max == resource.RLIM_INFINITY else files_max,
        memory_bytes,
        free_bytes,
        tuple(disk(path) for path in dict.fromkeys([*directories, tempfile.gettempdir()])),
    )


def _memory() -> tuple[int, int]:
    """Bytes of memory, and those that are free; the cgroup's, if it has a limit that is lower."""
    found = meminfo(MEMINFO.read_text("ascii")) if MEMINFO.exists() else (0, 0)
    with contextlib.suppress(OSError, ValueError):
        limit = int((CGROUP / "memory.max").read_text("ascii"))
        used = int((CGROUP / "memory.current").read_text("ascii"))
        if not found[0] or limit < found[0]:
            return limit, max(0, limit - used)
    return found


def meminfo(text: str) -> tuple[int, int]:
    """Bytes in all, and those that programs can still get, of `/proc/meminfo`."""
    values = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in text.splitlines())}
    return values.get("MemTotal", 0), values.get("MemAvailable", 0)


def disk(path: str) -> Disk:
    """The file system below a directory, which need not be there yet."""
    there = Path(path).absolute()
    is_missing = not there.exists()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        usage = shutil.disk_usage(there)
    except OSError as error:
        return Disk(path, f"it cannot be looked at: {error.strerror}")
    if not os.access(there, os.W_OK | os.X_OK):
        return Disk(path, f"user {os.geteuid()} may not write in {there}")
    return Disk(path, "", usage.total, usage.free, is_missing)


def secret(token_file: str | None, environment: dict[str, str], now_s: float) -> Secret:
    """The token, of this file or of the environment."""
    source = token_file or (TOKEN_VARIABLE if environment.get(TOKEN_VARIABLE) else "")
    try:
        tokens = read_tokens(token_file, environment)
    except InvalidOption as error:
        return Secret(source, f"allowed is {error.allowed}")
    age_s = None if token_file is None else now_s - Path(token_file).stat().st_mtime
    return Secret(source, "", not source or bool(tokens.shown), age_s)


def certificates(tls: TLS) -> list[Certificate]:
    """The one that is shown, and those of the authorities."""
    return [Certificate(tls.cert, *_own(tls)), *_authorities(tls.ca)]


def _authorities(path: str) -> Iterable[Certificate]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        yield Certificate(path, f"it has no certificates (PEM): {error}")
        return
    for number, found in enumerate(context.get_ca_certs(), 1):
        yield Certificate(path if number == 1 else f"{path} (number {number})", "", not_after_s(found))


def not_after_s(certificate: Any) -> float | None:
    """When a certificate expires, as `ssl` has it."""
    return ssl.cert_time_to_seconds(certificate["notAfter"]) if certificate else None


def _own(tls: TLS) -> tuple[str, float | None]:
    """Why the certificate will not do, and when it expires: by a handshake of this process with itself, in which a
    daemon looks at it as it will."""
    try:
        daemon = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        daemon.verify_mode = ssl.CERT_REQUIRED
        peer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        peer.check_hostname, peer.verify_mode = False, ssl.CERT_NONE
        for context in (daemon, peer):
            context.load_cert_chain(tls.cert, tls.key, lambda: "")
            context.load_verify_locations(tls.ca)
        return "", not_after_s(handshake(daemon, peer)[0])
    except ssl.SSLCertVerificationError as error:
        return f"a daemon with {tls.ca} does not accept it: {error.verify_message}", None
    except (OSError, ValueError) as error:
        return f"it is no certificate (PEM) with the key {tls.key}: {error}", None
