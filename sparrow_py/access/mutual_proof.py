"""How two processes that share a key begin a connection: each proves that it has the key, and neither sends it.

    dialler                                         acceptor
      introduction: what it wants, nonce       ->
                                               <-   challenge: nonce, proof of the acceptor
      proof of the dialler                     ->

A proof is an HMAC-SHA256 by the key over the role of whoever makes it and all that was said before. Nonces are fresh on
both sides, so what was recorded is worth nothing later; roles differ, so a challenge that is thrown back is not
answered by its own proof. Each part has a fixed length. What comes afterwards is not protected by this, unless it has a
proof of its own (`Dialogue.proof`).

What an introduction says besides its nonce is for its protocol: `actors/greeting.py` has one, programs over arrays
another.

Pure: bytes in, bytes out; sockets, nonces and time-outs are the driver's.
"""

from __future__ import annotations

import hashlib
import hmac

KEY_BYTES = 32
NONCE_BYTES = 32
PROOF_BYTES = hashlib.sha256().digest_size
CHALLENGE_BYTES = NONCE_BYTES + PROOF_BYTES
DIALLER, ACCEPTOR = b"dialler", b"acceptor"


class ProofError(Exception):
    """Why there is no connection."""


class Dialogue:
    """What two have said to each other, and who has proved what; each side has one, and both are the same.

    Both begin it with the introduction. The acceptor says `challenge`, the dialler `answer`, and the acceptor looks at
    that (`check_answer`).
    """

    def __init__(self, key: bytes, introduction: bytes) -> None:
        self._key = key
        self._said = introduction

    def challenge(self, nonce: bytes) -> bytes:
        """The acceptor's challenge, `CHALLENGE_BYTES` long."""
        self._said += nonce
        challenge = nonce + self.proof(ACCEPTOR)
        self._said += challenge[NONCE_BYTES:]
        return challenge

    def answer(self, challenge: bytes) -> bytes | None:
        """The dialler's proof, `PROOF_BYTES` long; None if whoever made the challenge does not have the key."""
        self._said += challenge[:NONCE_BYTES]
        if not self.is_proof(ACCEPTOR, challenge[NONCE_BYTES:]):
            return None
        self._said += challenge[NONCE_BYTES:]
        proof = self.proof(DIALLER)
        self._said += proof
        return proof

    def check_answer(self, proof: bytes) -> bool:
        """Whether this is the proof of a dialler that has the key."""
        if not self.is_proof(DIALLER, proof):
            return False
        self._said += proof
        return True

    def proof(self, role: bytes) -> bytes:
        """Of whoever has this role, at this point of the dialogue."""
        return hmac.digest(self._key, role + b"\0" + self._said, "sha256")

    def is_proof(self, role: bytes, proof: bytes) -> bool:
        """Whether this is the proof of one that has the key and this role."""
        return hmac.compare_digest(proof, self.proof(role))
