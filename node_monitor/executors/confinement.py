"""What executors may do on this machine: as which user they run, and within which limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from node_monitor.host.accounts import ALL_AS_OURSELVES, OWN, UserAccounts
from node_monitor.host.os_account import Account
from sparrow_py.errors import InvalidOption
from sparrow_py.limits import open_files
from sparrow_py.limits.task_limits import NO_LIMITS, TaskLimits

if TYPE_CHECKING:
    from node_monitor.options import NodeMonitorOptions

PTRACE_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
"""Who may ptrace whom among the processes of one account: 0, or no such file, is every one."""
LAUNCHER = str(Path(__file__).with_name("launcher.py"))


def ptrace_warning() -> str:
    """What an operator should know whose users share an account; empty if the kernel keeps its processes apart."""
    try:
        found = Path(PTRACE_SCOPE).read_text().strip()
    except OSError:
        found = "missing"
    if found not in ("missing", "0"):
        return ""
    return (
        f"{PTRACE_SCOPE} is {found}: tasks of one account can get into a process of it that starts, and so into "
        "other users' tasks; set kernel.yama.ptrace_scope=1, or give each user an account by run_as (SECURITY.md)"
    )


@dataclass(frozen=True, slots=True)
class Confinement:
    """How executors are started. By default as our own user, without limits.

    users: whose tasks run as which account. accounts: those by name, but for our own.
    """

    users: UserAccounts = ALL_AS_OURSELVES
    accounts: Mapping[str, Account] = field(default_factory=dict)
    limits: TaskLimits = NO_LIMITS
    processes_max: int = 0

    @classmethod
    def of(cls, options: NodeMonitorOptions) -> Confinement:
        """What the operator says; `InvalidOption` if that cannot be."""
        names = {name: _named(name, options.accounts) for name in options.accounts.names if name != OWN}
        accounts = {account.name: account for account in names.values() if account is not None}
        for account in accounts.values():
            for interpreter in {sys.executable, options.python or sys.executable}:
                account.check(interpreter)
        if options.run_as_processes_max and not accounts:
            allowed = "0 unless run_as is another user: all processes of that user count, wherever they come from"
            raise InvalidOption("run_as_processes_max", options.run_as_processes_max, allowed)
        limits = TaskLimits(options.task_memory_bytes_max, options.task_cpu_s_max, options.task_open_files_max)
        own = {OWN: OWN} | {name: OWN if account is None else account.name for name, account in names.items()}
        return cls(options.accounts.renamed(own), accounts, limits, options.run_as_processes_max)

    @property
    def only_account(self) -> Account | None:
        """The account of all executors, if they have one that is not ours."""
        return next(iter(self.accounts.values())) if len(self.accounts) == 1 else None

    @property
    def readers(self) -> dict[str, int]:
        """The accounts' user ids by name, where there are several."""
        return {name: account.uid for name, account in self.accounts.items()} if len(self.accounts) > 1 else {}

    def command(
        self, argv: tuple[str, ...], account: Account | None, *, limited: bool, kept: tuple[int, ...] = ()
    ) -> list[str]:
        """The command that becomes this one. `limited`: what the process takes is what its task takes. `kept`: which
        descriptors it has besides its streams."""
        options = [f"--parent={os.getpid()}", *(f"--keep={descriptor}" for descriptor in kept)]
        if account is not None:
            groups = ",".join(map(str, account.groups))
            options.append(f"--user={account.uid}:{account.gid}:{groups}")
        kinds = {"nproc": self.processes_max}
        if limited:
            kinds |= {"data": self.limits.memory_bytes, "nofile": self.limits.open_files}
        options += [f"--limit={kind}={limit}" for kind, limit in kinds.items() if limit]
        if soft := open_files.soft_limit_before():
            options.append(f"--files={soft}")
        return [sys.executable, "-I", "-S", LAUNCHER, *options, "--", *argv]

    def environment(self, account: Account | None) -> dict[str, str]:
        """What executors of the account find in their environment of it."""
        names = {} if account is None else {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
        return names | dict(self.limits.environment())


def _named(name: str, users: UserAccounts) -> Account | None:
    """As `Account.named`. Users are not kept from each other by the account that keeps what they have."""
    account = Account.named(name)
    if account is None and users.maps:
        raise InvalidOption("run_as", name, "another user than the daemon's own, where each user has an account")
    return account
