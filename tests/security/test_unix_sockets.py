"""The Unix sockets of embedded schedulers: who reaches them, what is asked there, and what is left of them."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from scheduler.options import SchedulerOptions
from sparrow_py import Client, InvalidRequest, LocalCluster, NoScheduler
from sparrow_py.access.credentials import Access
from sparrow_py.access.unix_addresses import unix_address, unix_path, unix_url
from sparrow_py.daemon.listener import unix_socket
from sparrow_py.daemon.options import parse
from sparrow_py.embedded.unix_sockets import UnixSockets
from sparrow_py.errors import InvalidOption
from sparrow_py.wire import connector
from sparrow_py.wire.addresses import check_address
from sparrow_py.wire.connector import Connector
from tests.support import tasks
from tests.support.daemons import gone
from tests.support.guarded import ADA, Authority, ask, tls_flags
from tests.support.raw_links import why_refused
from tests.support.waiting import TIMEOUT_S, wait_until


def listening(directory: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "socket"))
    listener.listen()
    return listener


# ---- who reaches them ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o710, 0o701, 0o755, 0o777])
def test_a_directory_that_others_may_enter_keeps_a_daemon_from_starting(mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(InvalidOption, match=r"also_listen_fd: .*mode 0700"):
        unix_socket(listening(tmp_path).detach())


def test_a_directory_of_another_account_does_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(InvalidOption, match=r"also_listen_fd: .*mode 0700"):
        unix_socket(listening(tmp_path).detach())


def test_what_is_no_unix_socket_with_a_path_is_not_listened_on() -> None:
    nameless = socket.socket(socket.AF_UNIX)
    for made in (socket.create_server(("127.0.0.1", 0)), nameless):
        with pytest.raises(InvalidOption, match="also_listen_fd"):
            unix_socket(made.detach())


def test_there_is_none_beside_tls(authority: Authority) -> None:
    """What it asks of certificates would not be asked there."""
    with pytest.raises(Exception, match="also_listen_fd"):
        parse(SchedulerOptions, ["--also-listen-fd", "9", *tls_flags(authority.issue("unix", "cluster"))])


@pytest.mark.processes
@pytest.mark.parametrize("processes", ["one", "separate"])
def test_an_embedded_cluster_has_a_directory_of_its_own_for_them(processes: str) -> None:
    with LocalCluster(slots=1, processes=processes) as cluster, Client(cluster) as client:
        path = Path(unix_path(cluster.dialled[0]))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
        assert client._session._addresses() == cluster.dialled
        assert [node.id for node in client.nodes()] == ["node-0"]
        large = b"x" * 2_000_000  # It is uploaded to where the scheduler says, and that is asked over the socket, too.
        assert client.submit(len, large).result(TIMEOUT_S) == len(large)
    assert not path.parent.exists()


@pytest.mark.processes
def test_where_there_can_be_none_tcp_is_dialled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(slots=1, unix_sockets=False) as cluster, Client(cluster) as client:
        assert cluster.dialled == cluster.addresses
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
    long = tmp_path / ("d" * 100)
    open_to_all = tmp_path / "open"
    for directory, mode in ((long, 0o700), (open_to_all, 0o777), (tmp_path / "absent", None)):
        if mode is not None:
            directory.mkdir()
            directory.chmod(mode)
        monkeypatch.setattr(tempfile, "tempdir", str(directory))
        sockets = UnixSockets(wanted=True)
        assert sockets.listen("scheduler-0") is None
        assert sockets.address(None) == ""
        sockets.remove()
        assert not list(directory.glob("*"))


# ---- what is asked there ---------------------------------------------------------------------


@pytest.mark.processes
def test_tokens_are_asked_for_as_over_tcp(guarded: LocalCluster) -> None:
    (address,) = guarded.dialled
    assert unix_path(address)
    assert "the token is missing or wrong" in why_refused(address, Access.of("wrong".ljust(40, "-")))
    assert ask(Access(), address, "GET", "/v1/jobs")[0] == 401
    assert ask(Access.of(ADA), address, "POST", "/v1/drain")[0] in (403, 404, 405)
    with pytest.raises(NoScheduler, match="token"):
        Client(address, token="wrong".ljust(40, "-"), connect_timeout_s=3600.0)
    with Client(address, token=ADA) as client:
        assert client.submit(tasks.square, 4).result(TIMEOUT_S) == 16
        assert client._session.user == "ada"


@pytest.mark.processes
def test_a_web_page_gets_nowhere_there_either(guarded: LocalCluster) -> None:
    (address,) = guarded.dialled
    assert ask(Access.of(ADA), address, "GET", "/v1/jobs", None, Origin="http://evil.example")[0] == 403


# ---- what peers name -------------------------------------------------------------------------


async def test_no_address_that_a_peer_names_and_no_redirection_leads_to_one(tmp_path: Path) -> None:
    """A node monitor asks addresses for data that clients have named; this machine's sockets are not among those."""
    address = unix_address(str(tmp_path / "socket"))
    url = Access().url(address, "/")
    with pytest.raises(InvalidRequest):
        check_address(address)

    async def redirect(_: aiohttp.web.Request) -> aiohttp.web.Response:
        raise aiohttp.web.HTTPFound(url)

    app = aiohttp.web.Application()
    app.router.add_get("/", redirect)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    listener = listening(tmp_path)
    listener.setblocking(False)
    try:
        async with aiohttp.ClientSession(connector=Connector()) as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{runner.addresses[0][1]}/")
            host = url.removeprefix("unix://").removesuffix("/")
            with pytest.raises((aiohttp.ClientError, UnicodeError)):
                await session.get(f"http://{host}:1/")
        with pytest.raises(BlockingIOError):
            listener.accept()
    finally:
        listener.close()
        await runner.cleanup()


NOBODY = 65534


# ---- who listens ---------------------------------------------------------------------------------


async def why_unanswered(path: Path) -> str:
    """Why a request to the socket got no answer."""
    async with aiohttp.ClientSession(connector=Connector()) as session:
        with pytest.raises(aiohttp.ClientConnectorError) as refused:
            await session.get(unix_url(str(path), "/"))
    return str(refused.value.os_error)


async def test_a_socket_at_which_another_account_listens_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = listening(tmp_path)
    listener.setblocking(False)
    ours = os.geteuid()
    monkeypatch.setattr(connector, "_PEER", SimpleNamespace(size=12, unpack=lambda _: (1, ours + 1, 0)))
    with closing(listener):
        assert f"account {ours + 1} listens" in await why_unanswered(tmp_path / "socket")
        accepted, _ = listener.accept()
        accepted.setblocking(False)
        with closing(accepted):
            assert accepted.recv(1) == b"", "nothing was said before the connection was closed"


def impostor(path: Path, says: int) -> None:
    """As another account: listen at the path, and say what the first who dials has said."""
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()
        os.write(says, b"listens\n")
        accepted, _ = listener.accept()
        os.write(says, b"heard %r\n" % accepted.recv(1000))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another account")
async def test_an_impostor_of_another_account_hears_nothing() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o777)
        path = Path(directory) / "socket"
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                impostor(path, write)
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as said:
            assert said.readline() == b"listens\n"
            assert f"account {NOBODY} listens" in await why_unanswered(path)
            assert said.readline() == b"heard b''\n"
        os.waitpid(child, 0)


@pytest.mark.processes
@pytest.mark.parametrize("processes", ["one", "separate"])
def test_as_long_as_the_program_lives_nobody_else_can_make_the_directory_of_its_sockets(processes: str) -> None:
    with LocalCluster(slots=1, processes=processes) as cluster:
        directory = Path(unix_path(cluster.dialled[0])).parent
        scheduler = cluster.scheduler_processes[0].process
        scheduler.send_signal(signal.SIGTERM)
        scheduler.wait(TIMEOUT_S)
        assert directory.exists()
    assert not directory.exists()


# ---- what is left ----------------------------------------------------------------------------

KILLED_AT_START = """
import os, signal, sys
from sparrow_py import LocalCluster
from sparrow_py.embedded import daemon_process, unix_sockets

def die(process):
    print(made[0], *[one.pid for one in started])
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)

def listen(sockets, name, listen=unix_sockets.UnixSockets.listen):
    found = listen(sockets, name)
    made.append(sockets.address(found))
    return found

def start(*arguments, popen=daemon_process.Popen, **more):
    started.append(popen(*arguments, **more))
    return started[-1]

made, started = [], []
unix_sockets.UnixSockets.listen, daemon_process.Popen = listen, start
daemon_process.DaemonProcess.wait_until_ready = die
LocalCluster(slots=1, processes={processes!r})
"""
KILLED = """
import os, signal
from sparrow_py import LocalCluster
cluster = LocalCluster(slots=1, processes={processes!r})
print(cluster.dialled[0], *[process.pid for process in (*cluster.scheduler_processes, *cluster.node_processes)])
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
""".replace("import os", "import os, sys")


@pytest.mark.processes
@pytest.mark.parametrize("processes", ["one", "separate"])
@pytest.mark.parametrize("text", [KILLED, KILLED_AT_START], ids=["later", "while its cluster starts"])
@pytest.mark.rest
def test_nothing_is_left_of_a_program_that_is_killed(processes: str, text: str) -> None:
    program = [sys.executable, "-c", text.format(processes=processes)]
    said = subprocess.run(program, capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout.split()
    wait_until(lambda: all(gone(int(pid)) for pid in said[1:]), "the daemons to end")
    assert not Path(unix_path(said[0])).parent.exists()
