"""Keeping a link to every scheduler: dial, serve, dial again with backoff, for ever.

Node monitors and clients both hold links to all schedulers that their sources name
(`addresses`), as schedulers come and go.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from sparrow_py.access.credentials import OPEN, Access
from sparrow_py.errors import InvalidRequest, LinkError, LinkRefused, SparrowError
from sparrow_py.wire import dial, links, resolution
from sparrow_py.wire import messages as m
from sparrow_py.wire.links import Link
from sparrow_py.wire.outgoing import Outgoing

log = logging.getLogger("sparrow.links")
REDIAL_MIN_S = 0.05
REDIAL_MAX_S = 5.0
OUTAGE_SAID_AFTER_S = 3.0
"""So long no link stands until that is said: a scheduler that is only started again is back before."""
NOT_LINKED_SAID_AFTER_S = 5.0
"""A scheduler that cannot be dialled for so long is told of: one that is only started again is back before."""
STOOD_S = 5.0
"""A link that stood for so long is dialled again at once."""


class LinkUser(Protocol):
    """Who uses the links."""

    def scheduler_up(self, scheduler: str, welcome: m.Welcome) -> None:
        """A link stands."""

    def scheduler_said(self, scheduler: str, batch: list[Any]) -> None:
        """A frame's messages, without a Goodbye; `LinkError` if they may not have been sent."""

    def scheduler_down(self, scheduler: str, reason: str) -> None:
        """A link is gone."""


class Dialling:
    """Links to all schedulers of `sources`, by the name each scheduler gives itself."""

    def __init__(
        self,
        sources: Sequence[str],
        hello: m.Hello,
        decode: m.FrameDecoder,
        user: LinkUser,
        session: aiohttp.ClientSession,
        *,
        heartbeat_s: float,
        backlog_bytes_max: int = links.BACKLOG_BYTES_MAX,
        access: Callable[[], Access] = lambda: OPEN,
        outgoing: Outgoing | None = None,
        look: Callable[[], None] | None = None,
        unreachable: Callable[[str], None] = lambda scheduler: None,
        all_dialled: Callable[[], None] = lambda: None,
        denied: Callable[[], None] = lambda: None,
        not_linked: Callable[[str], None] | None = None,
    ) -> None:
        """`outgoing` is shared by all links of the loop; `look` is called before a frame is looked at; `unreachable`
        when a scheduler that was linked has been dialled again, and did not answer; `all_dialled` once, when each
        address has been dialled: those that answered are linked; `denied` when the last dial of each address has been
        refused because of the token or the certificate; `not_linked` with the reason when an address has not been
        linked for a while, and whenever the reason changes."""
        self.links: dict[str, Link] = {}
        self.last_error = "no scheduler has been dialled yet"
        self._sources = sources
        self._hello = hello
        self._decode = decode
        self._user = user
        self._session = session
        self._heartbeat_s = heartbeat_s
        self._backlog_bytes_max = backlog_bytes_max
        self._access = access
        """What is dialled with: asked each time, as it may be renewed."""
        self._outgoing = Outgoing() if outgoing is None else outgoing
        self._look = look
        self._unreachable = unreachable
        self._all_dialled: Callable[[], None] | None = all_dialled
        """Until it has been called."""
        self._denied = denied
        self._deniers: set[str] = set()
        """Addresses whose last dial was refused because of the token or the certificate."""
        self._undialled: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._scheduler_at: dict[str, str] = {}
        self._failures: dict[str, str] = {}
        """Why the last dial to an address failed, of those that no link leads to."""
        self._not_linked = not_linked
        self._apart_since_s: dict[str, float] = {}
        """Since when no link has led to an address; monotonic."""
        self._told: dict[str, str] = {}
        """Of those addresses: the reason that somebody has heard last."""
        self._cut_off_at_s: float | None = None
        """Since when no link stands, after one did; monotonic."""
        self._outage: asyncio.TimerHandle | None = None
        """When it will be said that no link stands; None if one does, or if it has been said."""
        self._stopping = False
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to dial."""
        self._watch = asyncio.create_task(self._watch_addresses())

    def renew(self) -> None:
        """The token is another: show it on the links that stand, before the one they stand on is withdrawn."""
        token = self._access().token
        for link in self.links.values() if token else ():
            link.send(m.Renew(token))

    def give_up(self, reason: str) -> None:
        """Links that stand are as good as gone: their user hears so now, and they are dialled again."""
        for scheduler, link in list(self.links.items()):
            link.close(reason)
            self._drop(scheduler, reason)

    def _drop(self, scheduler: str, reason: str) -> None:
        del self.links[scheduler]
        if not self.links and not self._stopping:
            self._cut_off()
        self._user.scheduler_down(scheduler, reason)

    async def stop(self, reason: str) -> None:
        """Close all links and dial no more."""
        self._stopping = True
        if self._outage is not None:
            self._outage.cancel()
        tasks = [*self._tasks.values(), *([self._watch] if self._watch else [])]
        for link in list(self.links.values()):
            await link.aclose(reason)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- outages -----------------------------------------------------------------------------

    def cut_off_s(self) -> float:
        """For how long no link has stood; 0 while one does, or if none ever did."""
        since_s = self._cut_off_at_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def is_denied(self) -> bool:
        """Whether no link stands, and each address has refused the token or the certificate when it was last dialled.
        Of any thread."""
        addresses = [*self._tasks]
        return bool(addresses) and not self.links and self._deniers.issuperset(addresses)

    def why_cut_off(self) -> str:
        """Each address, with why no link leads there. Of any thread."""
        reasons = [self._failures.get(address, f"scheduler {address} does not answer") for address in [*self._tasks]]
        return "; ".join(reasons) or self.last_error

    def _reached(self) -> None:
        """A link stands."""
        if self._outage is not None:
            self._outage.cancel()
            self._outage = None
        elif self._cut_off_at_s is not None:
            log.info("a scheduler is reached again, after %.1f s", self.cut_off_s())
        self._cut_off_at_s = None

    def _cut_off(self) -> None:
        """The last link is gone."""
        self._cut_off_at_s = time.monotonic()
        self._outage = asyncio.get_running_loop().call_later(OUTAGE_SAID_AFTER_S, self._say_outage)

    def _say_outage(self) -> None:
        self._outage = None
        log.warning("no scheduler can be reached, and dialling goes on: %s", self.why_cut_off())
        self._told.update(self._failures)

    def _say_not_linked(self, address: str, reason: str) -> None:
        """The address has been dialled in vain once more."""
        apart_s = time.monotonic() - self._apart_since_s[address]
        is_news = self._told.get(address) != reason and apart_s >= NOT_LINKED_SAID_AFTER_S
        if self._not_linked is not None and is_news:
            self._told[address] = reason
            self._not_linked(reason)

    # ---- the links ---------------------------------------------------------------------------

    async def _watch_addresses(self) -> None:
        """Keep a task per address, as addresses come and go."""
        problem = ""
        while True:
            try:
                wanted = await resolution.resolve(self._sources)
            except SparrowError as error:
                if str(error) != problem:
                    log.warning("%s; links stay as they are until that is mended", error)
                self.last_error = problem = str(error)
                wanted = list(self._tasks)
            else:
                if problem:
                    log.info("schedulers can be found again: %s", ", ".join(self._sources))
                problem = ""
            for address in wanted:
                if address not in self._tasks:
                    self._undialled.add(address)
                    self._tasks[address] = asyncio.create_task(self._keep_link(address))
            for address in set(self._tasks) - set(wanted):
                self._tasks.pop(address).cancel()
                self._linked(address)
                self._dialled(address)
            if resolution.is_fixed(self._sources):
                return
            await asyncio.sleep(resolution.REFRESH_S)

    async def _keep_link(self, address: str) -> None:
        cuts = 0
        while True:
            # Two addresses may lead to one scheduler, which knows each peer by one link only.
            while self._scheduler_at.get(address) in self.links:
                await asyncio.sleep(REDIAL_MAX_S)
            async for attempt in AsyncRetrying(
                wait=wait_random_exponential(multiplier=REDIAL_MIN_S, max=REDIAL_MAX_S),
                retry=retry_if_exception_type(LinkError),
            ):
                with attempt:
                    link, welcome = await self._dial(address)
            stood_since_s = time.monotonic()
            try:
                await self._serve(address, link, welcome)
            except (
                Exception
            ):  # A bug of ours, or of code of the user's that we called: it must not end the link for good.
                log.exception("the link to %s failed", address)
                await link.aclose("internal error")
            # One that accepts links and cuts them at once is not dialled at full speed.
            cuts = 0 if time.monotonic() - stood_since_s > STOOD_S else cuts + 1
            if cuts:
                await asyncio.sleep(min(REDIAL_MIN_S * 2 ** min(cuts, 20), REDIAL_MAX_S))

    async def _dial(self, address: str) -> tuple[Link, m.Welcome]:
        self._apart_since_s.setdefault(address, time.monotonic())
        try:
            link = await dial.dial(
                self._session,
                address,
                self._hello,
                self._decode,
                heartbeat_s=self._heartbeat_s,
                backlog_bytes_max=self._backlog_bytes_max,
                access=self._access(),
                outgoing=self._outgoing,
            )
        except LinkError as error:
            self.last_error = str(error)
            # Somebody must do something about a refusal, so it is said, but not at each of the dials to come.
            news = isinstance(error, LinkRefused) and self._failures.get(address) != str(error)
            log.log(logging.WARNING if news else logging.DEBUG, "%s", error)
            self._failures[address] = str(error)
            if news:
                self._told[address] = str(error)
            self._say_not_linked(address, str(error))
            if address in self._scheduler_at:
                self._unreachable(self._scheduler_at[address])
            self._dialled(address)
            self._see_denied(address, is_denied=isinstance(error, LinkRefused) and error.is_denied)
            raise
        self._linked(address)
        return link

    def _linked(self, address: str) -> None:
        """Nothing is wrong with the address: a link leads there, or nobody names it any more."""
        for known in (self._failures, self._apart_since_s, self._told):
            known.pop(address, None)
        self._deniers.discard(address)

    def _see_denied(self, address: str, *, is_denied: bool) -> None:
        """The address has been dialled in vain."""
        if not is_denied:
            self._deniers.discard(address)
            return
        self._deniers.add(address)
        if self.is_denied():
            self._denied()

    def _dialled(self, address: str) -> None:
        """The address has been dialled, with a link or in vain."""
        self._undialled.discard(address)
        if not self._undialled and self._all_dialled is not None:
            tell, self._all_dialled = self._all_dialled, None
            tell()

    async def _serve(self, address: str, link: Link, welcome: m.Welcome) -> None:
        scheduler = welcome.name
        before = self._scheduler_at.get(address, scheduler)
        self._scheduler_at[address] = scheduler
        if scheduler in self.links:
            await link.aclose("there is a link already")
            self._dialled(address)
            return
        self.links[scheduler] = link
        self._reached()
        try:
            self._user.scheduler_up(scheduler, welcome)
            self._dialled(address)
            if before not in self.links:  # Another has its address.
                self._unreachable(before)
            link.listen(partial(self._said, scheduler, link), self._look)
            await link.ended()
        except (LinkError, InvalidRequest) as error:
            log.warning("scheduler %s at %s is cut off: %s", scheduler, address, error)
            link.close(str(error))
        finally:
            if self.links.get(scheduler) is link:
                self._drop(scheduler, link.closed_because or self._why_ended(address))
            await link.aclose(self._why_ended(address))

    def _why_ended(self, address: str) -> str:
        """Why a link is at its end that nobody has closed with a reason."""
        if address in self._tasks:
            return "the connection was closed"
        changing = [source for source in self._sources if not resolution.is_fixed([source])]
        return f"{address} is no longer named by {', '.join(changing)}"

    def _said(self, scheduler: str, link: Link, batch: list[Any]) -> None:
        if m.Goodbye not in map(type, batch):
            self._user.scheduler_said(scheduler, batch)
            return
        goodbye = batch.pop()
        if type(goodbye) is not m.Goodbye or m.Goodbye in map(type, batch):
            raise LinkError("something follows a Goodbye")
        self._user.scheduler_said(scheduler, batch)
        link.close(goodbye.reason)  # It may not get round to closing the connection.
