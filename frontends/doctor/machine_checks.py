"""What is wrong with this machine, its token and its certificates. Pure: from facts to findings."""

from __future__ import annotations

from collections.abc import Iterator

from frontends.doctor.facts import Certificate, Disk, Machine, Secret
from frontends.doctor.findings import Finding, note, ok, wrong

FILES_MIN = 4096
"""Open files that a daemon should be allowed: a scheduler takes half as many clients."""
MEMORY_FREE_MIN = 0.05
"""Share of the memory that should be free."""
DISK_FREE_BYTES_MIN = 1 << 30
DISK_FREE_BYTES_FEW = 8 << 30
"""What `blob_bytes_max` is by default."""
DAY_S = 86_400.0
TOKEN_DAYS_MAX = 365
"""An older token is known to more people and backups than anybody remembers."""
CERTIFICATE_DAYS_MIN = 14
"""Who has fewer days left should have a new certificate by now: cert-manager's are renewed 30 days before the end."""


def of_machine(machine: Machine) -> Iterator[Finding]:
    """Its versions and limits."""
    yield ok("versions", f"Python {machine.python}, sparrow-py {machine.version}, protocol {machine.protocol}")
    said = f"a process may have {machine.files_max:,} open"
    if machine.files_max < FILES_MIN:
        advice = f"raise the hard limit (ulimit -Hn, LimitNOFILE= of a unit) to {FILES_MIN:,} or twice the clients"
        yield wrong("open files", said, advice)
    else:
        yield ok("open files", said)
    yield from _of_memory(machine)
    for disk in machine.disks:
        yield of_disk(disk)


def _of_memory(machine: Machine) -> Iterator[Finding]:
    if not machine.memory_bytes:
        yield note("memory", "this system does not say how much there is")
        return
    said = f"{gib(machine.memory_free_bytes)} of {gib(machine.memory_bytes)} free"
    if machine.memory_free_bytes < MEMORY_FREE_MIN * machine.memory_bytes:
        yield wrong("memory", said, "end what is not needed, give node monitors fewer slots or task_memory_bytes_max")
    else:
        yield ok("memory", said)


def of_disk(disk: Disk) -> Finding:
    """Whether large data finds room there."""
    subject = f"disk {disk.path}"
    if disk.why_not:
        return wrong(subject, disk.why_not, "name another directory (blob_dir, TMPDIR), or mend its permissions")
    said = f"{gib(disk.free_bytes)} of {gib(disk.size_bytes)} free"
    if disk.free_bytes < DISK_FREE_BYTES_MIN:
        return wrong(subject, said, "make room, or put blob_dir on another disk")
    if disk.free_bytes < DISK_FREE_BYTES_FEW:
        return note(
            subject, said, "a node monitor keeps 8 GiB of large data there unless blob_bytes_max says otherwise"
        )
    if disk.is_missing:
        return note(
            subject, f"it is not there; {said}", "a node monitor makes it (blob_dir): see that the name is right"
        )
    return ok(subject, said)


def of_secret(secret: Secret, token_days_max: float = TOKEN_DAYS_MAX) -> Finding:
    """Whether the token will do, and how old it is."""
    if not secret.source:
        return note("token", "none is given", "daemons beyond loopback ask for one, or for TLS (--token-file)")
    subject = f"token {secret.source}"
    if secret.why_not:
        return wrong(subject, secret.why_not, "mend the file, or name another")
    if not secret.is_known:
        return wrong(subject, "only hashes are there, which cannot be shown", "give the secret itself to who dials")
    if secret.age_s is None:
        return ok(subject, "how old it is nobody knows, as it comes from the environment")
    said = f"written {days(secret.age_s)} ago"
    if secret.age_s > token_days_max * DAY_S:
        return wrong(subject, said, "replace it: a new one beside it, SIGHUP, then without the old one (SECURITY.md)")
    return ok(subject, said)


def of_certificate(certificate: Certificate, now_s: float) -> Finding:
    """Whether it is good, and for how long."""
    subject = f"certificate {certificate.subject}"
    if certificate.why_not:
        return wrong(subject, certificate.why_not, "put certificates that are in order in the files, and send SIGHUP")
    if certificate.not_after_s is None:
        return ok(subject, "accepted")
    left_s = certificate.not_after_s - now_s
    if left_s < 0:
        return wrong(subject, f"expired {days(-left_s)} ago", "issue a new one, replace the file and send SIGHUP")
    said = f"expires in {days(left_s)}"
    if left_s < CERTIFICATE_DAYS_MIN * DAY_S:
        return wrong(subject, said, "issue a new one, replace the file and send SIGHUP")
    return ok(subject, said)


def gib(count: int) -> str:
    """Bytes for people."""
    return f"{count / (1 << 30):,.1f} GiB"


def days(seconds: float) -> str:
    """A time for people, in hours if it is short."""
    if seconds < 2 * DAY_S:
        return f"{seconds / 3600:.0f} hours"
    return f"{seconds / DAY_S:,.0f} days"
