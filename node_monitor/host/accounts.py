"""As which account of the machine each user's tasks run: what the option `run_as` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparrow_py.daemon.options import require
from sparrow_py.errors import InvalidOption

ACCOUNTS_MAX = 64
"""Accounts of one node monitor: each has executors of its own, and their servers."""
OTHERS = "*"
"""In the option: every user who has no entry."""
OWN = ""
"""In place of an account's name: the node monitor's own."""


@dataclass(frozen=True, slots=True)
class UserAccounts:
    """Users to the names of accounts.

    by_user: of the users that have an entry. others: that of everybody else; None: they have none.
    """

    by_user: Mapping[str, str] = field(default_factory=dict)
    others: str | None = OWN

    @classmethod
    def parsed(cls, texts: Sequence[str]) -> UserAccounts:
        """What the option's values mean: ACCOUNT for all users, or USER=ACCOUNT for each; `InvalidOption`."""
        if not texts:
            return cls()
        by_user: dict[str, str] = {}
        for text in texts:
            user, equals, account = text.rpartition("=")
            if not equals:
                require(
                    len(texts) == 1, "run_as", text, "USER=ACCOUNT where there are several; *=ACCOUNT for all others"
                )
                user = OTHERS
            require(bool(user and account), "run_as", text, "ACCOUNT, or USER=ACCOUNT")
            if user in by_user:
                raise InvalidOption("run_as", text, f"one account for each user; {user!r} has {by_user[user]!r}")
            by_user[user] = account
        found = cls(by_user, by_user.pop(OTHERS, None))
        count = len(found.names)
        require(count <= ACCOUNTS_MAX, "run_as", f"{count} accounts", f"at most {ACCOUNTS_MAX}")
        return found

    def of(self, user: str) -> str | None:
        """The account as which this user's tasks run; None if the user has none."""
        return self.by_user.get(user, self.others)

    @property
    def names(self) -> tuple[str, ...]:
        """The accounts, each once."""
        others = () if self.others is None else (self.others,)
        return tuple(dict.fromkeys((*others, *self.by_user.values())))

    @property
    def maps(self) -> bool:
        """Whether users are told apart."""
        return bool(self.by_user)

    @property
    def shared(self) -> bool:
        """Whether tasks of several users may run as one account."""
        return self.others is not None or len(set(self.by_user.values())) < len(self.by_user)

    def renamed(self, names: Mapping[str, str]) -> UserAccounts:
        """The same with other names for the accounts."""
        by_user = {user: names[account] for user, account in self.by_user.items()}
        return UserAccounts(by_user, None if self.others is None else names[self.others])


ALL_AS_OURSELVES = UserAccounts()
