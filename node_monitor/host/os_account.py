"""A user of this machine, as the passwd file has it, whom the daemon may become for its executors."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from dataclasses import dataclass

from sparrow_py.errors import InvalidOption

PROBE_TIMEOUT_S = 20.0
"""How long the interpreter may take to start as the user, before the user counts as unable to run it."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine that is not the daemon's."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @classmethod
    def named(cls, name: str) -> Account | None:
        """The user of this name or number; None if it is our own. `InvalidOption` if we cannot become it."""
        try:
            entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
        except (KeyError, OverflowError):
            raise InvalidOption("run_as", name, "a user of this machine") from None
        if entry.pw_uid == os.geteuid():
            return None
        if os.geteuid() != 0:
            raise InvalidOption("run_as", name, "this process's own user; it takes root to start executors as another")
        if entry.pw_uid == 0:
            raise InvalidOption("run_as", name, "another user than root")
        groups = [entry.pw_gid, *(group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem)]
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(dict.fromkeys(groups)), entry.pw_dir)

    def check(self, interpreter: str) -> None:
        """`InvalidOption` unless this process may become the user, and the user may run the interpreter."""
        try:
            subprocess.run(
                [interpreter, "-I", "-S", "-c", ""],
                user=self.uid, group=self.gid, extra_groups=self.groups, cwd="/",
                check=True, capture_output=True, timeout=PROBE_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            allowed = f"a user that this process may become, and that may run {interpreter} ({error})"
            raise InvalidOption("run_as", self.name, allowed) from None
