"""Becomes an executor: `python -I -S launcher.py --parent=PID [--user=UID:GID:GROUP,…] [--limit=KIND=N]… [--files=N]
[--keep=DESCRIPTOR] -- COMMAND`. `--files` is the soft limit of open files that the node monitor was started with.

Of what is open only the three standard streams and `--keep` are passed on: uvloop leaves copies of the streams open,
inheritable, and one of them would be a fork server's connection to its node monitor in all its executors.

Between fork and exec there is no other place for this: asyncio's and uvloop's subprocesses know no such options, and
`preexec_fn` runs Python in a copy of the daemon. So a process of its own does it, and then is the executor.

It loads next to nothing, and nothing from where the executor's user could put it.
"""

# ruff: noqa: PTH100, PTH118, PTH120 - pathlib takes time to import
from __future__ import annotations

import os
import resource
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

TYPE_CHECKING = False  # As `typing` has it, which takes time, too.
if TYPE_CHECKING:
    from sparrow_py.processes.process_control import (
        SIGKILL,
        adopt_orphans,
        die_with_parent,
        lower_limit,
        refuse_new_privileges,
        restore_soft_limit,
    )
else:  # By itself, which takes a third of the time that it takes with its package.
    sys.path.append(os.path.join(ROOT, "sparrow_py", "processes"))
    from process_control import (
        SIGKILL,
        adopt_orphans,
        die_with_parent,
        lower_limit,
        refuse_new_privileges,
        restore_soft_limit,
    )

LIMITS = {"data": resource.RLIMIT_DATA, "nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
CANNOT_RUN_EXIT = 127


def become(user: str) -> None:
    """Be this user and nobody else, for good."""
    uid, gid, groups = user.split(":")
    os.setgroups([int(group) for group in groups.split(",") if group])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))
    refuse_new_privileges()
    os.chdir("/")  # The daemon's directory may be none that this user can enter.


def close_all_but(kept: set[int]) -> None:
    """Close all descriptors but the standard streams and these."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib takes time to import
        if int(name) > 2 and int(name) not in kept:
            try:  # noqa: SIM105 - contextlib takes time to import
                os.close(int(name))
            except OSError:  # That of the listing itself.
                pass


def confined(arguments: list[str]) -> list[str]:
    """Do what the arguments say; returns the command that they end with."""
    split = arguments.index("--")
    options = [argument.removeprefix("--").partition("=")[::2] for argument in arguments[:split]]
    given = dict(options)
    close_all_but({int(value) for name, value in options if name == "keep"})
    if "files" in given:
        restore_soft_limit(resource.RLIMIT_NOFILE, int(given["files"]))
    for name, value in options:
        if name == "limit":
            kind, _, limit = value.partition("=")
            lower_limit(LIMITS[kind], int(limit))
    if "user" in given:
        become(given["user"])
    adopt_orphans()
    die_with_parent(SIGKILL, int(given["parent"]))  # Last: a change of user would take it back.
    return arguments[split + 1 :]


def main(arguments: list[str]) -> None:
    """Do what the arguments say, and then be the command that they end with."""
    command = confined(arguments)
    os.execvp(command[0], command)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        print(f"sparrow launcher: {error.strerror}: {' '.join(sys.argv[1:])}", file=sys.stderr)
        sys.exit(CANNOT_RUN_EXIT)
