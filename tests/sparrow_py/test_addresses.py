"""Where schedulers are: the three forms, and what is none of them."""

import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.errors import InvalidOption, InvalidRequest, NoScheduler
from sparrow_py.wire import addresses, resolution


@pytest.mark.parametrize("address", ["127.0.0.1:20503", "localhost:1", "node-1.example.org:65535", "[::1]:20503"])
def test_addresses(address: str) -> None:
    assert addresses.check_address(address) == address
    assert addresses.check_source(address) == address
    assert resolution.is_fixed([address])


@pytest.mark.parametrize(
    "address",
    [
        "", ":", "host", "host:", ":1", "host:0", "host:65536", "host:-1", "host:1.5", "host:²", "host:٣", "::1:5",
        "host:" + "9" * 5000, "http://host:1", "host:1/path", "user@host:1", "ho st:1", "ho\tst:1", "host\n:1", "h\0:1",
    ],
)  # fmt: skip
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InvalidRequest, match="scheduler address"):
        addresses.check_address(address)


@given(st.text())
def test_any_text_is_an_address_or_an_invalid_request(text: str) -> None:
    try:
        assert addresses.check_source(text) == text
    except InvalidRequest as error:
        assert error.field == "scheduler address"


@pytest.mark.parametrize(
    "source", ["file:", "file:\0", "file:/a\ud800", "unix:/a\ud800", "dns:", "dns:name", "dns:name:x", "dns::1"]
)
def test_what_is_no_source(source: str) -> None:
    with pytest.raises(InvalidRequest, match="scheduler address"):
        addresses.check_source(source)


@pytest.mark.parametrize("source", ["ant:99999", "dns:ant", "dns:ant:99999", "ant"])
def test_what_is_no_source_is_said_as_it_was_given_with_its_option_and_what_is_allowed(source: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        addresses.check_source(source, "scheduler")
    allowed = "host:port, file:PATH, dns:NAME:PORT or unix:PATH, with a port from 1 to 65535"
    assert str(caught.value) == f"scheduler: {source!r} is not valid; allowed: {allowed}"


def test_files_and_names_are_not_fixed() -> None:
    assert not resolution.is_fixed(["127.0.0.1:1", "file:/x"])
    assert not resolution.is_fixed(["dns:name:1"])


async def test_resolve_keeps_the_order_and_drops_what_comes_again() -> None:
    assert await resolution.resolve(["b:1", "a:1", "b:1"]) == ["b:1", "a:1"]


def test_functions_that_are_not_async_resolve_too() -> None:
    assert resolution.resolved(["b:1", "a:1", "b:1"]) == ["b:1", "a:1"]


async def test_so_they_do_within_an_event_loop_as_cells_of_notebooks_run() -> None:
    assert resolution.resolved(["b:1", "a:1"]) == ["b:1", "a:1"]
    with pytest.raises(NoScheduler, match="cannot be read"):
        resolution.resolved(["file:/nowhere"])


async def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "schedulers"
    path.write_text("# two of them\na:1\n\n  b:2  # the second\n")
    assert await resolution.resolve([f"file:{path}"]) == ["a:1", "b:2"]
    path.write_text("c:3")
    assert await resolution.resolve([f"file:{path}", "a:1"]) == ["c:3", "a:1"]
    path.write_text("# being written\n")
    with pytest.raises(NoScheduler, match="names no scheduler"):  # Links to those that it named before stay.
        await resolution.resolve([f"file:{path}"])


@pytest.mark.parametrize(
    ("line", "allowed"), [("not one", "host:port"), ("dns:a:1", "an IPv6 host in brackets, as in [::1]:20503")]
)
async def test_a_file_with_a_bad_line_names_it(line: str, allowed: str, tmp_path: Path) -> None:
    path = tmp_path / "schedulers"
    path.write_text(f"# mine\na:1\n{line}\n")
    with pytest.raises(InvalidRequest) as caught:
        await resolution.resolve([f"file:{path}"])
    assert str(caught.value) == f"schedulers' file {path}, line 3: {line!r} is not valid; allowed: {allowed}"


async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "none", tmp_path, tmp_path / "binary"):
        with pytest.raises(NoScheduler, match=str(path)):
            await resolution.resolve([f"file:{path}"])


async def test_a_name_with_many_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [("10.0.0.2", 7), ("10.0.0.1", 7), ("::1", 7, 0, 0), ("10.0.0.1", 7)]

    def getaddrinfo(name: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert (name, port) == ("sparrow.example", 7)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert await resolution.resolve(["dns:sparrow.example:7"]) == ["10.0.0.1:7", "10.0.0.2:7", "[::1]:7"]


async def test_a_name_of_this_machine() -> None:
    assert "127.0.0.1:20503" in await resolution.resolve(["dns:localhost:20503"])


@pytest.mark.parametrize("name", ["x" * 70, "a..b"])
async def test_a_name_that_cannot_be_is_no_scheduler(name: str) -> None:
    with pytest.raises(NoScheduler, match="does not resolve"):
        await resolution.resolve([f"dns:{name}:1"])
