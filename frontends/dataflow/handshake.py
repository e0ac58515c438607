"""How two peers of a program begin a connection: each proves that it has the program's key, and neither sends it.

    dialler                                        acceptor
      introduction: numbers, purpose, nonce   ->
                                              <-   challenge: nonce, proof of the acceptor
      proof of the dialler                    ->
                                              <-   verdict, with a proof of it

What a proof is, and why it is one: `sparrow_py.access.mutual_proof`. What comes after the verdict is not protected.

Pure: bytes in, bytes out; sockets and time-outs are the driver's.
"""

from __future__ import annotations

import enum
import struct

from frontends.dataflow.errors import peer_name
from sparrow_py.access.mutual_proof import CHALLENGE_BYTES, NONCE_BYTES, PROOF_BYTES, Dialogue

KEY_BYTES_MIN = 16
PAIR_BYTES = 16
MAGIC = b"sparrow dataflow 2"
_INTRODUCTION = struct.Struct(f"<{len(MAGIC)}sqqB{PAIR_BYTES}s{NONCE_BYTES}s")
INTRODUCTION_BYTES = _INTRODUCTION.size
VERDICT_BYTES = 1 + PROOF_BYTES
VERDICT = b"verdict"
"""The role of whoever says one, with the verdict itself."""


class HandshakeError(Exception):
    """Why there is no connection."""


class Purpose(enum.IntEnum):
    """What a connection is for."""

    MESSAGES = 1
    BUFFERS = 2
    """Large buffers of the messages on the connection with the same `pair`."""


class Verdict(enum.IntEnum):
    """What the acceptor says to a dialler that has the key."""

    WELCOME = 0
    OTHER_PEER = 1
    LINKED_ALREADY = 2


_REFUSALS = {
    Verdict.OTHER_PEER: "another peer of the program listens there",
    Verdict.LINKED_ALREADY: "it has a link with this peer already",
}


def check_key(key: bytes) -> bytes:
    """The key; `ValueError` if it is too short to be one."""
    if len(key) < KEY_BYTES_MIN:
        raise ValueError(f"key: {len(key)} bytes; a program's key has at least {KEY_BYTES_MIN}")
    return key


class Dialler:
    """The side that connects. Send `introduction`, then what `receive` returns, until `done`."""

    def __init__(self, key: bytes, me: int, peer: int, purpose: Purpose, pair: bytes, nonce: bytes) -> None:
        self.introduction = _INTRODUCTION.pack(MAGIC, me, peer, purpose, pair, nonce)
        self._dialogue = Dialogue(key, self.introduction)
        self.done = False
        self.wanted = CHALLENGE_BYTES
        """How many bytes `receive` takes next."""

    def receive(self, data: bytes) -> bytes:
        """Take the next `wanted` bytes; what to send then. `HandshakeError` says why there is no connection."""
        if self.wanted == CHALLENGE_BYTES:
            return self._challenged(data)
        code, proof = data[:1], data[1:]
        if not self._dialogue.is_proof(VERDICT + code, proof):
            raise HandshakeError("its verdict is not proved")
        if code[0] != Verdict.WELCOME:
            raise HandshakeError(_REFUSALS.get(Verdict(code[0]), f"it refuses, for reason {code[0]}"))
        self.done = True
        return b""

    def _challenged(self, data: bytes) -> bytes:
        proof = self._dialogue.answer(data)
        if proof is None:
            raise HandshakeError("whoever listens there does not have the program's key")
        self.wanted = VERDICT_BYTES
        return proof


class Acceptor:
    """The side that listens. Send what `receive` returns, until `proved`; then say `verdict`."""

    def __init__(self, key: bytes, me: int, nonce: bytes) -> None:
        self._key, self._me, self._nonce = key, me, nonce
        self._dialogue: Dialogue | None = None
        self.wanted = INTRODUCTION_BYTES
        """How many bytes `receive` takes next."""
        self.proved = False
        self.peer = 0
        self.purpose = Purpose.MESSAGES
        self.pair = b""
        self._meant = 0

    def receive(self, data: bytes) -> bytes:
        """Take the next `wanted` bytes; what to send then. `HandshakeError` says why there is no connection."""
        if self._dialogue is None:
            return self._introduced(data)
        if not self._dialogue.check_answer(data):
            raise HandshakeError(f"what calls itself {peer_name(self.peer)} does not have the program's key")
        self.proved = True
        return b""

    def _introduced(self, data: bytes) -> bytes:
        magic, self.peer, self._meant, purpose, self.pair, _ = _INTRODUCTION.unpack(data)
        if magic != MAGIC:
            raise HandshakeError("what dials is no peer of a program, or of another version")
        try:
            self.purpose = Purpose(purpose)
        except ValueError:
            raise HandshakeError(f"purpose {purpose} of a connection is not known") from None
        self._dialogue = Dialogue(self._key, data)
        self.wanted = PROOF_BYTES
        return self._dialogue.challenge(self._nonce)

    def verdict(self, *, linked: bool) -> tuple[Verdict, bytes]:
        """What becomes of the dialler, and what to send it; `linked`: it has a link already."""
        assert self.proved and self._dialogue is not None
        verdict = (
            Verdict.OTHER_PEER if self._meant != self._me else Verdict.LINKED_ALREADY if linked else Verdict.WELCOME
        )
        code = bytes([verdict])
        return verdict, code + self._dialogue.proof(VERDICT + code)
