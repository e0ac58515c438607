"""How two processes that share a key begin a connection: each proves that it has the key, and neither sends it.

    dialler                                         acceptor
      introduction: what it wants, nonce       ->
                                               <-   challenge: nonce, proof of the acceptor
      proof of the dialler                     ->

A proof is an HMAC-SHA256 by the key over the role of whoever makes it and all that was said before. Nonces are fresh on
both sides, so what was recorded is worth nothing later; roles differ, so a challenge that is thrown back is not
answered by its own proof. Each part has a fixed length. What comes afterwards is not protected by this.

Pure: bytes in, bytes out; sockets, nonces and time-outs are the driver's.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable

KEY_BYTES = 32
NONCE_BYTES = 32
PROOF_BYTES = hashlib.sha256().digest_size
MAGIC = b"sparrow actor 1"
_INTRODUCTION = struct.Struct(f"<{len(MAGIC)}sQ{NONCE_BYTES}s")
INTRODUCTION_BYTES = _INTRODUCTION.size
CHALLENGE_BYTES = NONCE_BYTES + PROOF_BYTES


class ProofError(Exception):
    """Why there is no connection."""


def _proof(key: bytes, role: bytes, said: bytes) -> bytes:
    return hmac.digest(key, role + b"\0" + said, "sha256")


class Dialler:
    """The side that connects. Send `introduction`, and then what `challenged` returns."""

    def __init__(self, key: bytes, subject: int, nonce: bytes) -> None:
        """subject: which of the acceptor's keys it is."""
        self._key = key
        self.introduction = _INTRODUCTION.pack(MAGIC, subject, nonce)

    def challenged(self, challenge: bytes) -> bytes:
        """Take the challenge, `CHALLENGE_BYTES` long; the proof to send. `ProofError` if whoever made it has no key."""
        nonce, proof = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
        said = self.introduction + nonce
        if not hmac.compare_digest(proof, _proof(self._key, b"acceptor", said)):
            raise ProofError("whoever listens there does not have the key")
        return _proof(self._key, b"dialler", said + proof)


class Acceptor:
    """The side that listens. Send what `receive` returns, until `proved`."""

    def __init__(self, key_of: Callable[[int], bytes | None], nonce: bytes) -> None:
        """key_of: the key of a subject, if there is one."""
        self._key_of, self._nonce = key_of, nonce
        self._key = self._said = b""
        self.subject = 0
        self.proved = False
        self.wanted = INTRODUCTION_BYTES
        """How many bytes `receive` takes next."""

    def receive(self, data: bytes) -> bytes:
        """Take the next `wanted` bytes; what to send then. `ProofError` says why there is no connection."""
        if not self._key:
            return self._introduced(data)
        if not hmac.compare_digest(data, _proof(self._key, b"dialler", self._said)):
            raise ProofError("whoever dials does not have the key")
        self.proved = True
        return b""

    def _introduced(self, data: bytes) -> bytes:
        magic, self.subject, _ = _INTRODUCTION.unpack(data)
        if magic != MAGIC:
            raise ProofError("what dials is no actor and no caller of one, or of another version")
        key = self._key_of(self.subject)
        if not key:
            raise ProofError("what dials asks for an actor that is not here")
        self._key = key
        challenge = self._nonce + _proof(key, b"acceptor", data + self._nonce)
        self._said = data + challenge
        self.wanted = PROOF_BYTES
        return challenge
