"""Sessions of people who look at a daemon with a browser: what they get for a token, so that the browser keeps none.

A session is a name that cannot be guessed. It stands for the principal whose token was shown, for some hours at most
and no longer than that token does. Browsers show cookies to all ports of a host, so it must not be worth more than a
look.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from sparrow_py.access.principals import Principal

SESSIONS_MAX = 1000
"""Sessions at a time; one more ends the oldest."""
SESSIONS_OF_PRINCIPAL_MAX = 20
"""Of these, those of one token; one more ends its oldest."""
SESSION_S_MAX = 12 * 3600.0


class _Session(NamedTuple):
    principal: Principal
    until_s: float


class ViewSessions:
    """See the module's docstring. `mint` makes names; `stands` says whether what proved a principal is still valid."""

    def __init__(self, mint: Callable[[], str], stands: Callable[[Principal], bool]) -> None:
        self._mint = mint
        self._stands = stands
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        """By name, the oldest first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, principal: Principal, now_s: float) -> str:
        """A new session of this principal; returns its name."""
        own = [name for name, session in self._sessions.items() if session.principal == principal]
        for name in own[: len(own) + 1 - SESSIONS_OF_PRINCIPAL_MAX]:
            del self._sessions[name]
        if len(self._sessions) == SESSIONS_MAX:
            self._sessions.popitem(last=False)
        name = self._mint()
        self._sessions[name] = _Session(principal, now_s + SESSION_S_MAX)
        return name

    def principal(self, name: str, now_s: float) -> Principal | None:
        """Whose session this is; None if there is none of the name, or none any more."""
        session = self._sessions.get(name)
        if session is None:
            return None
        if session.until_s <= now_s or not self._stands(session.principal):
            del self._sessions[name]
            return None
        return session.principal

    def end(self, name: str) -> None:
        """It is over, if there is one of this name."""
        self._sessions.pop(name, None)
