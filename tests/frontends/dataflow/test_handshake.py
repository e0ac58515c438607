"""How connections begin: both sides have the key, and nothing that was said before helps whoever has not."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.dataflow.handshake import (
    INTRODUCTION_BYTES,
    PAIR_BYTES,
    Acceptor,
    Dialler,
    HandshakeError,
    Purpose,
    Verdict,
    check_key,
)
from sparrow_py.access.mutual_proof import CHALLENGE_BYTES, NONCE_BYTES, PROOF_BYTES

KEY = bytes(range(32))
PAIR = bytes(PAIR_BYTES)


def dialler(key: bytes = KEY, me: int = 1, peer: int = 2, nonce: bytes | None = None) -> Dialler:
    return Dialler(key, me, peer, Purpose.MESSAGES, PAIR, nonce or secrets.token_bytes(NONCE_BYTES))


def acceptor(key: bytes = KEY, me: int = 2, nonce: bytes | None = None) -> Acceptor:
    return Acceptor(key, me, nonce or secrets.token_bytes(NONCE_BYTES))


def shake(one: Dialler, other: Acceptor, *, linked: bool = False) -> Verdict:
    proof = one.receive(other.receive(one.introduction))
    assert other.receive(proof) == b""
    verdict, said = other.verdict(linked=linked)
    assert one.receive(said) == b""
    return verdict


def test_two_with_the_key_have_a_connection_and_know_its_purpose() -> None:
    one, other = dialler(), acceptor()
    assert shake(one, other) is Verdict.WELCOME
    assert one.done and other.proved and (other.peer, other.purpose, other.pair) == (1, Purpose.MESSAGES, PAIR)


def test_who_dials_another_peer_or_a_second_time_is_told_so() -> None:
    with pytest.raises(HandshakeError, match="another peer of the program"):
        shake(dialler(peer=3), acceptor())
    with pytest.raises(HandshakeError, match="has a link with this peer already"):
        shake(dialler(), acceptor(), linked=True)


def test_a_dialler_without_the_key_is_refused_and_learns_so_from_the_challenge() -> None:
    one, other = dialler(key=bytes(32)), acceptor()
    challenge = other.receive(one.introduction)
    with pytest.raises(HandshakeError, match="listens there does not have the program's key"):
        one.receive(challenge)
    with pytest.raises(HandshakeError, match="worker 1 does not have the program's key"):
        other.receive(bytes(PROOF_BYTES))
    assert not other.proved


def test_a_challenge_that_is_thrown_back_is_not_answered() -> None:
    """Whoever has no key dials the acceptor twice, to have it answer its own challenge."""
    first, second = acceptor(), acceptor()
    introduction = dialler().introduction
    challenge = first.receive(introduction)
    nonce, proof = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
    with pytest.raises(HandshakeError):
        first.receive(proof)
    reflected = second.receive(introduction[:-NONCE_BYTES] + nonce)
    with pytest.raises(HandshakeError):
        acceptor_again = acceptor(nonce=nonce)
        acceptor_again.receive(introduction)
        acceptor_again.receive(reflected[NONCE_BYTES:])


def test_what_was_recorded_is_worth_nothing_later() -> None:
    one, other = dialler(), acceptor()
    challenge = other.receive(one.introduction)
    proof = one.receive(challenge)
    other.receive(proof)
    _, said = other.verdict(linked=False)
    again = acceptor()
    again.receive(one.introduction)
    with pytest.raises(HandshakeError, match="does not have the program's key"):
        again.receive(proof)
    new = dialler()
    with pytest.raises(HandshakeError, match="listens there does not have"):
        new.receive(challenge)
    new = dialler()
    new.receive(acceptor().receive(new.introduction))
    with pytest.raises(HandshakeError, match="verdict is not proved"):
        new.receive(said)


@given(st.integers(0, INTRODUCTION_BYTES + CHALLENGE_BYTES + 2 * PROOF_BYTES), st.integers(1, 255))
def test_a_byte_that_is_changed_on_the_way_ends_the_handshake(position: int, change: int) -> None:
    passed = 0

    def on_the_way(data: bytes) -> bytes:
        nonlocal passed
        at, passed = position - passed, passed + len(data)
        return bytes([*data[:at], data[at] ^ change, *data[at + 1 :]]) if 0 <= at < len(data) else data

    one, other = dialler(), acceptor()
    with pytest.raises((HandshakeError, ValueError)):
        proof = one.receive(on_the_way(other.receive(on_the_way(one.introduction))))
        other.receive(on_the_way(proof))
        one.receive(on_the_way(other.verdict(linked=False)[1]))


def test_a_stranger_is_refused_by_its_first_bytes_and_a_short_key_at_once() -> None:
    with pytest.raises(HandshakeError, match="no peer of a program"):
        acceptor().receive(b"GET / HTTP/1.1\r\n".ljust(INTRODUCTION_BYTES))
    with pytest.raises(ValueError, match="15 bytes; a program's key has at least 16"):
        check_key(bytes(15))
