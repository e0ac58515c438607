"""Tokens, certificates' subjects and what principals may do: the pure part."""

import errno
import hashlib
import pickle
import ssl
import string
from http.client import RemoteDisconnected

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.access import principals
from sparrow_py.access.credentials import ASKS_FOR_TLS, OPEN, tls_reason
from sparrow_py.access.principals import CLIENT, CLUSTER, Principal, Token, Tokens, blob_key, parse_tokens
from sparrow_py.errors import AccessDenied, InvalidOption

SECRET, OTHER, THIRD = "s" * 32, "o" * 32, "t" * 32
HASH = "ab" * 32

secrets = st.text(string.ascii_letters + string.digits + "+/=_-.~!#:", min_size=32, max_size=256).filter(
    lambda text: not text.startswith(("#", principals.HASHED))
)
users = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)


def test_one_word_is_the_clusters_secret() -> None:
    tokens = parse_tokens(f"# ours\n\n {SECRET} \r\n")
    assert tokens.find(SECRET) == Principal(CLUSTER, "", principals.digest_of(SECRET))
    assert (tokens.dialling, tokens.shown, len(tokens)) == (SECRET, SECRET, 1)


def test_a_line_for_each_token() -> None:
    tokens = parse_tokens(f"client ada {OTHER}\ncluster {SECRET}\n# the next\nclient Ada King {THIRD}\n")
    assert str(tokens.find(OTHER)) == "role client, user 'ada'"
    assert str(tokens.find(THIRD)) == "role client, user 'Ada King'"
    assert str(tokens.find(SECRET)) == "role cluster"
    assert (tokens.shown, tokens.dialling) == (OTHER, SECRET)


@pytest.mark.parametrize(
    "wrong", ["", SECRET[:-1], SECRET + "s", SECRET.upper(), "ü" * 32, "\udcff" * 32, "s" * 10_000]
)
def test_another_secret_is_nobodys(wrong: str) -> None:
    assert parse_tokens(SECRET).find(wrong) is None
    assert Tokens().find(wrong) is None


@given(
    st.lists(st.tuples(st.one_of(st.none(), users), secrets), min_size=2, max_size=8, unique_by=lambda each: each[1])
)
def test_every_token_of_a_file_is_found_and_no_other(entries: list[tuple[str | None, str]]) -> None:
    lines = [f"cluster {secret}" if user is None else f"client {user} {secret}" for user, secret in entries]
    tokens = parse_tokens("\n".join(lines))
    for user, secret in entries:
        found = tokens.find(secret)
        assert found is not None
        assert (found.role, found.user) == ((CLUSTER, "") if user is None else (CLIENT, user))
        assert tokens.stands(found)
        assert tokens.find(secret[:-1]) is None
    assert not tokens.stands(Principal(CLIENT, "nobody", principals.digest_of(SECRET)))


@given(st.text(max_size=200))
def test_no_text_does_anything_but_parse_or_name_what_is_wrong(text: str) -> None:
    try:
        tokens = parse_tokens(text)
    except InvalidOption as error:
        assert error.field == "token_file"
    else:
        assert len(tokens) >= 1


@given(
    secrets, st.sampled_from(["clutser {}", "client {}", "cluster a {}", "cluster {} x", "{0} {0}", "client \x00 {}"])
)
def test_what_is_wrong_with_a_line_does_not_show_it(secret: str, line: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_tokens(f"cluster {'z' * 32}\n{line.format(secret)}\n")
    assert secret not in str(caught.value)
    assert "line 2" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", "one secret"),
        ("# nothing", "one secret"),
        ("short", "32 to 256"),
        ("x" * 257, "32 to 256"),
        ("pass " * 8, "cluster SECRET, or client USER SECRET"),
        ("sha256:abc", "64 characters"),
        (f"cluster {SECRET}\ncluster {SECRET}", "another secret than that of line 1"),
        (f"cluster {SECRET}\nclient ada {SECRET}", "another secret than that of line 1"),
        (f"client {'u' * 257} {SECRET}", "at most 256 bytes"),
    ],
)
def test_what_a_file_may_not_be(text: str, allowed: str) -> None:
    with pytest.raises(InvalidOption, match=allowed) as caught:
        parse_tokens(text)
    assert SECRET not in str(caught.value)


def test_there_is_a_most_of_tokens() -> None:
    lines = [f"client u{number} {number:032}" for number in range(principals.TOKENS_MAX)]
    assert len(parse_tokens("\n".join(lines))) == principals.TOKENS_MAX
    with pytest.raises(InvalidOption, match=f"at most {principals.TOKENS_MAX}"):
        parse_tokens("\n".join([*lines, f"cluster {SECRET}"]))


def test_a_hash_is_enough_to_check_a_secret_and_not_to_show_it() -> None:
    hashed = principals.HASHED + hashlib.sha256(OTHER.encode()).hexdigest()
    tokens = parse_tokens(f"client ada {hashed}\ncluster {SECRET}")
    assert str(tokens.find(OTHER)) == "role client, user 'ada'"
    assert tokens.find(hashed) is None
    assert tokens.shown == SECRET
    assert parse_tokens(hashed).dialling == ""


def test_a_token_stands_until_it_is_withdrawn_or_another_users() -> None:
    before = parse_tokens(f"cluster {SECRET}\nclient ada {OTHER}")
    ada = before.find(OTHER)
    assert ada is not None
    assert parse_tokens(f"client ada {THIRD}\nclient ada {OTHER}").stands(ada)
    assert not parse_tokens(f"cluster {SECRET}\nclient ada {THIRD}").stands(ada)
    assert not parse_tokens(f"cluster {SECRET}\nclient bob {OTHER}").stands(ada)
    assert Tokens().stands(principals.ANYBODY)  # Nothing was asked for, or a certificate.


def test_nothing_shows_a_secret() -> None:
    tokens = parse_tokens(f"client ada {OTHER}\ncluster {SECRET}")
    ada = tokens.find(OTHER)
    shown = f"{tokens!r} {ada!r} {ada} {Token(Principal(CLUSTER), SECRET)!r} {vars(InvalidOption('a', 'b', 'c'))}"
    assert SECRET not in shown
    assert OTHER not in shown
    assert "digest" not in shown


def test_every_token_is_compared_whichever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(given: bytes, known: bytes) -> bool:
        compared.append(known)
        return given == known

    tokens = parse_tokens("\n".join(f"cluster {number:032}" for number in range(5)))
    monkeypatch.setattr(principals.hmac, "compare_digest", compare)
    for number in (0, 4, 9):
        compared.clear()
        tokens.find(f"{number:032}")
        assert len(compared) == 5
        assert {len(each) for each in compared} == {32}


# ---- blobs -----------------------------------------------------------------------------------


def test_a_blobs_key_opens_that_blob_only_and_does_not_tell_the_secret() -> None:
    tokens = parse_tokens(f"cluster {SECRET}\ncluster {OTHER}\nclient ada {THIRD}")
    for secret in (SECRET, OTHER):
        key = blob_key(secret, HASH)
        assert tokens.opens_blob(key, HASH)
        assert not tokens.opens_blob(key, "cd" * 32)
        assert secret not in key
        assert tokens.find(key) is None
    assert not tokens.opens_blob(blob_key(THIRD, HASH), HASH)
    assert not tokens.opens_blob(blob_key("", HASH), HASH)
    assert not Tokens().opens_blob(blob_key("", HASH), HASH)


# ---- certificates ----------------------------------------------------------------------------


def subject(**names: str | list[str]) -> dict[str, object]:
    """A certificate as `ssl.SSLSocket.getpeercert` has it."""
    pairs = [(key, each) for key, values in names.items() for each in ([values] if isinstance(values, str) else values)]
    return {"subject": tuple(((key, value),) for key, value in pairs)}


def test_a_certificate_names_role_and_user() -> None:
    assert principals.principal_of_certificate(subject(organizationName="cluster", commonName="n1")) == Principal(
        CLUSTER
    )
    ada = principals.principal_of_certificate(subject(organizationName="client", commonName="ada"))
    assert ada == Principal(CLIENT, "ada")


@pytest.mark.parametrize(
    "certificate",
    [
        {},
        subject(commonName="ada"),
        subject(organizationName="client"),
        subject(organizationName="client", commonName=""),
        subject(organizationName="client", commonName="a\nb"),
        subject(organizationName="client", commonName=["ada", "bob"]),
        subject(organizationName=["client", "cluster"], commonName="ada"),
        subject(organizationName="Cluster", commonName="ada"),
        subject(organizationalUnitName="cluster", commonName="ada"),
    ],
)
def test_a_certificate_that_names_neither_is_nobodys(certificate: dict[str, object]) -> None:
    with pytest.raises(AccessDenied, match="certificate's"):
        principals.principal_of_certificate(certificate)


# ---- what a principal may be -----------------------------------------------------------------


def test_the_cluster_may_act_for_anybody_and_a_client_for_itself() -> None:
    ada = Principal(CLIENT, "ada")
    assert [Principal(CLUSTER).may_act_for(user) for user in ("ada", "")] == [True, True]
    assert [ada.may_act_for(user) for user in ("ada", "bob", "")] == [True, False, False]


def test_who_may_link_as_what() -> None:
    ada, cluster = Principal(CLIENT, "ada"), Principal(CLUSTER)
    assert principals.check_link(cluster, "client", "bob", stated=True) == "bob"
    assert principals.check_link(cluster, "node", "", stated=True) == ""
    assert principals.check_link(ada, "client", "ada", stated=True) == "ada"
    assert principals.check_link(ada, "client", "root", stated=False) == "ada"
    assert principals.check_link(ada, "client", "", stated=True) == "ada"
    with pytest.raises(AccessDenied, match=r"'bob' is not .* 'ada'"):
        principals.check_link(ada, "client", "bob", stated=True)
    with pytest.raises(AccessDenied, match="role cluster"):
        principals.check_link(ada, "node", "", stated=True)


def test_the_error_survives_pickling() -> None:
    assert str(pickle.loads(pickle.dumps(AccessDenied("no")))) == "no"


# ---- what a connection that fails has to do with TLS -----------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), ""),
        (TimeoutError(), ""),
        (OSError(errno.ECONNRESET, "reset"), ASKS_FOR_TLS),
        (RemoteDisconnected("ended"), ASKS_FOR_TLS),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), ASKS_FOR_TLS),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "it does not speak TLS"),
    ],
)
def test_why_a_connection_failed(error: Exception, said: str) -> None:
    assert tls_reason(error, OPEN).startswith(said)
    assert bool(said) == bool(tls_reason(error, OPEN))
