"""How whoever dials an actor's owner proves that it has the actor's key (`mutual_proof`): its introduction names the
actor.

Pure: bytes in, bytes out; sockets, nonces and time-outs are the driver's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from sparrow_py.access.mutual_proof import NONCE_BYTES, PROOF_BYTES, Dialogue, ProofError

MAGIC = b"sparrow actor 1"
_INTRODUCTION = struct.Struct(f"<{len(MAGIC)}sQ{NONCE_BYTES}s")
INTRODUCTION_BYTES = _INTRODUCTION.size


class Dialler:
    """The side that connects. Send `introduction`, and then what `challenged` returns."""

    def __init__(self, key: bytes, actor: int, nonce: bytes) -> None:
        self.introduction = _INTRODUCTION.pack(MAGIC, actor, nonce)
        self._dialogue = Dialogue(key, self.introduction)

    def challenged(self, challenge: bytes) -> bytes:
        """Take the challenge, `CHALLENGE_BYTES` long; the proof to send. `ProofError` if whoever made it has no key."""
        proof = self._dialogue.answer(challenge)
        if proof is None:
            raise ProofError("whoever listens there does not have the key")
        return proof


class Acceptor:
    """The side that listens. Send what `receive` returns, until `proved`."""

    def __init__(self, key_of: Callable[[int], bytes | None], nonce: bytes) -> None:
        """key_of: the key of an actor, if there is one."""
        self._key_of, self._nonce = key_of, nonce
        self._dialogue: Dialogue | None = None
        self.actor = 0
        self.proved = False
        self.wanted = INTRODUCTION_BYTES
        """How many bytes `receive` takes next."""

    def receive(self, data: bytes) -> bytes:
        """Take the next `wanted` bytes; what to send then. `ProofError` says why there is no connection."""
        if self._dialogue is None:
            return self._introduced(data)
        if not self._dialogue.check_answer(data):
            raise ProofError("whoever dials does not have the key")
        self.proved = True
        return b""

    def _introduced(self, data: bytes) -> bytes:
        magic, self.actor, _ = _INTRODUCTION.unpack(data)
        if magic != MAGIC:
            raise ProofError("what dials is no actor and no caller of one, or of another version")
        key = self._key_of(self.actor)
        if not key:
            raise ProofError("what dials asks for an actor that is not here")
        self._dialogue = Dialogue(key, data)
        self.wanted = PROOF_BYTES
        return self._dialogue.challenge(self._nonce)
