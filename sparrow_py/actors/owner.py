"""All actors of a client, and the sockets at which they dial it. On the client's loop, but for what says so."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparrow_py import calls
from sparrow_py.access.mutual_proof import KEY_BYTES
from sparrow_py.actors.door import Door, Guest, Peer
from sparrow_py.actors.methods import methods_of
from sparrow_py.actors.owned import Definition, Jobs, OwnedActor, Waits
from sparrow_py.actors.places import Place
from sparrow_py.auth import TLS
from sparrow_py.call_jobs import CallOptions, Uploaded
from sparrow_py.errors import InvalidRequest, LinkError, Refused, SparrowError
from sparrow_py.job import check_whole
from sparrow_py.wire.local_address import is_loopback

ACTORS_MAX = 1_000
"""Actors of a client that have not ended."""
DOORS_MAX = 16
"""Addresses at which a client is dialled."""
WAITING_CALLS_MAX = 1_000
"""Calls that wait for an actor, unless it is made with another number."""
RESTARTS_MAX = 1_000_000
LEASE_S = 60.0
"""Of an actor's task, if the options of calls state none."""


def definition_of(
    options: CallOptions,
    uploaded: Uploaded,
    cls: type,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    max_restarts: int,
    call_retries: int,
    waiting_calls_max: int,
) -> Definition:
    """What an actor is made of; raises `InvalidRequest`, or what pickling raises. In the caller's thread."""
    check_whole("max_restarts", max_restarts, 0, RESTARTS_MAX)
    check_whole("call_retries", call_retries, 0, RESTARTS_MAX)
    check_whole("waiting_calls_max", waiting_calls_max, 1, RESTARTS_MAX)
    for field in ("speculate", "gang", "retry_on", "retry"):
        if getattr(options, field):
            raise InvalidRequest(field, getattr(options, field), "nothing for an actor: max_restarts and call_retries")
    methods_of(cls)
    options = replace(
        options, max_attempts=1, retry_failed=False, capture_output=False, lease_s=options.lease_s or LEASE_S
    )
    payload = calls.encode_arguments((cls, args, kwargs), {})
    name = calls.function_name(cls)
    definition = Definition(name, options, payload, uploaded, max_restarts, call_retries, waiting_calls_max)
    options.check_calls(options.job(name, b"", [definition.task()]))
    return definition


class Actors:
    """tls: of the client, whose certificate is shown to those who dial from elsewhere. host: where its nodes can dial
    it, unless an actor is made with another address."""

    def __init__(self, jobs: Jobs, tls: TLS | None, host: Callable[[], str]) -> None:
        self._jobs = jobs
        self._tls = tls
        self._host = host
        self._doors: dict[str, Door] = {}
        self._actors: dict[int, OwnedActor] = {}
        """Those that have not ended."""
        self.queued: set[Waits] = set()
        """Who waits for calls that other threads have put on the loop, which has not come to them: whether or not the
        actor has ended, a child that is forked now has to hear of them."""
        self._next = 1

    def make(self, definition: Definition, advertise: str | None) -> OwnedActor:
        """Start an actor; `Refused` if there are too many."""
        if len(self._actors) >= ACTORS_MAX:
            raise Refused(f"{ACTORS_MAX} actors of this client have not ended: ACTORS_MAX")
        door = self._door(self._host() if advertise is None else advertise)
        number, self._next = self._next, self._next + 1
        place = Place(door.host, door.port, number, secrets.token_bytes(KEY_BYTES), door.certificate)
        actor = self._actors[number] = OwnedActor(self._jobs, place, definition, self.queued, self._has_ended)
        actor.core.begin()
        return actor

    def awaited(self) -> list[Waits]:
        """Who waits for calls that are not answered, actor by actor, in the order of the calls."""
        return [waits for actor in self._actors.values() for waits in actor.awaited()]

    def _door(self, host: str) -> Door:
        if host not in self._doors:
            if len(self._doors) >= DOORS_MAX:
                raise Refused(f"this client is dialled at {DOORS_MAX} addresses already: DOORS_MAX")
            self._doors[host] = Door(host, None if is_loopback(host) else self._tls, self._key_of, self._entered)
        return self._doors[host]

    def _key_of(self, number: int) -> bytes | None:
        actor = self._actors.get(number)
        return None if actor is None else actor.place.key

    def _entered(self, number: int, guest: Guest) -> Peer:
        actor = self._actors.get(number)
        if actor is None:
            raise LinkError("the actor has ended")
        return actor.entered(guest)

    def _has_ended(self, number: int) -> None:
        del self._actors[number]

    def close(self) -> None:
        """End all actors."""
        for actor in list(self._actors.values()):
            actor.stop("its client was closed")
        for door in self._doors.values():
            door.close()
            door.close_all("the client was closed")

    async def wait_closed(self) -> None:
        """Return when all connections have ended."""
        for door in self._doors.values():
            await door.wait_closed()
        self._doors.clear()

    def forked(self, why: str) -> None:
        """In a child of the process: actors are the parent's."""
        for door in self._doors.values():
            door.forked()
        queued, self.queued = self.queued, set()
        for waits in queued:
            waits.forked(SparrowError(why))
        for actor in list(self._actors.values()):
            actor.forked(SparrowError(why))
