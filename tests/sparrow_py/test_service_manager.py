"""Daemons tell systemd that they are ready, live and end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrow_py.daemon.service_manager import ServiceManager


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket that is listened on as systemd does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def heard(systemd: socket.socket) -> list[bytes]:
    said = []
    while True:
        try:
            said.append(systemd.recv(4096))
        except BlockingIOError:
            return said


def test_who_waits_hears_of_start_and_end(systemd: socket.socket) -> None:
    manager = ServiceManager(systemd.getsockname())
    manager.ready("listens on a:1")
    manager.stopping()
    assert heard(systemd) == [b"READY=1\nSTATUS=listens on a:1", b"STOPPING=1\nSTATUS=draining"]


def test_an_abstract_socket_is_found() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = f"sparrow-test-{os.getpid()}"
        listening.bind(f"\0{name}")
        listening.setblocking(False)
        ServiceManager(f"@{name}").ready("")
        assert heard(listening) == [b"READY=1\nSTATUS="]


async def test_the_watchdog_hears_of_a_loop_that_turns(systemd: socket.socket) -> None:
    alive = asyncio.create_task(ServiceManager(systemd.getsockname(), 30.0).show_life())
    await asyncio.sleep(0)
    assert heard(systemd) == [b"WATCHDOG=1"]
    assert not alive.done()
    alive.cancel()


async def test_without_a_watchdog_nothing_is_said(systemd: socket.socket) -> None:
    await ServiceManager(systemd.getsockname()).show_life()
    assert heard(systemd) == []


def test_where_nobody_listens_the_daemon_works_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager(str(tmp_path / "gone")).ready("")
    assert "the service manager does not hear READY=1" in caplog.text
    ServiceManager().ready("")


@pytest.mark.parametrize(
    ("said", "watchdog_s"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_environment_says_who_waits_and_executors_are_not_told(
    said: dict[str, str], watchdog_s: float, systemd: socket.socket
) -> None:
    environment = {"NOTIFY_SOCKET": systemd.getsockname(), "HOME": "/", **said}
    manager = ServiceManager.of_environment(environment)
    assert (manager.watchdog_s, environment) == (watchdog_s, {"HOME": "/"})
    manager.stopping()
    assert len(heard(systemd)) == 1


def test_an_embedded_daemon_does_not_speak_for_the_program_that_it_is_a_part_of(systemd: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": systemd.getsockname()}
    ServiceManager.of_environment(environment, heeded=False).ready("")
    assert (heard(systemd), environment) == ([], {})
