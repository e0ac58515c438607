"""Which Host headers are known to be this machine's."""

from __future__ import annotations

import pytest

from sparrow_py.http.http_guard import host_of, is_known


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
