"""Which Host headers are known to be this machine's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.http.http_guard import PORT_MAX, host_of, is_known, port_of


@pytest.mark.parametrize(
    "header",
    [
        "[::1].evil", "[::1]evil", "[::1].evil:80", "[::1]:80.evil", "[::1]]", "[::1", "[::1]:1:2", "[::1].", "[]",
        "[evil]", "[evil]:80", "[::1].localhost.evil", "[localhost]", "[127.0.0.1]", "127.0.0.1.evil", "[::g]", "[:]",
    ],
)  # fmt: skip
def test_what_only_begins_as_an_address_is_anybodys(header: str) -> None:
    assert not is_known(host_of(header), ())


@pytest.mark.parametrize("header", ["[::1]", "[::1]:80", "[::1]:", "[::FFFF:127.0.0.1]:80", "[fe80::1%eth0]:80"])
def test_addresses_are_nobodys(header: str) -> None:
    assert is_known(host_of(header), ())


@given(st.sampled_from(["x", "", "[::1]", "[fe80::1%eth0]", "a_b.c.", "10.0.0.1"]), st.integers(0, PORT_MAX))
def test_a_port_is_read_as_it_was_written(name: str, port: int) -> None:
    assert port_of(f"{name}:{port}") == port
    assert port_of(name) is port_of(f"{name}:") is None


@pytest.mark.parametrize(
    "header", ["x:99999", "x:abc", "x:-1", "\udcff:1", "[::1", "x:1:2", "a@b:1", "x:²", "x:١", "x/y:1", "x?y", "x y"]
)
def test_what_is_no_host_has_no_port(header: str) -> None:
    with pytest.raises(ValueError, match="is no Host header"):
        port_of(header)


@given(st.text())
def test_any_text_has_a_port_or_none_or_is_no_host(header: str) -> None:
    try:
        port = port_of(header)
    except ValueError:
        return
    assert port is None or 0 <= port <= PORT_MAX
