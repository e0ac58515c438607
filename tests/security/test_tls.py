"""Mutual TLS: links, HTTP and large data with certificates, and everybody without the right one."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from scheduler.options import SchedulerOptions
from sparrow_py import TLS, AsyncClient, Client, LocalCluster, NoScheduler
from sparrow_py.access import credentials as credentials_module
from sparrow_py.access.credentials import Access, Credentials, server_context
from sparrow_py.daemon import listener as listener_module
from sparrow_py.daemon.http_app import make_app
from sparrow_py.daemon.listener import TLS_HANDSHAKE_TIMEOUT_S, Listener
from sparrow_py.errors import AccessDenied, ClusterError, InvalidOption, LinkError
from sparrow_py.logs.sparing_log import LINES_MAX, SparingLog
from tests.support import tasks
from tests.support.daemons import Daemon
from tests.support.guarded import ADA, Authority, ask, tls_flags, usual_tokens
from tests.support.raw_links import RawLinks, hello, why_refused
from tests.support.waiting import ANSWER_S, TIMEOUT_S, wait_until

REFUSED = "it ended the TLS connection: the certificate of this side may have expired, or its authority"
"""What is said by who does not know: with TLS 1.3 a server just ends the connection."""


@pytest.fixture(scope="module")
def daemons_tls(authority: Authority) -> TLS:
    return authority.issue("daemons", "cluster", "a daemon")


@pytest.fixture(scope="module")
def adas_tls(authority: Authority) -> TLS:
    return authority.issue("ada", "client", "ada", host="ada.example")


@pytest.fixture(scope="module")
def cluster(daemons_tls: TLS, tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    """One scheduler and two node monitors with certificates and without tokens."""
    with LocalCluster(
        node_monitors=2, slots=1, tls=daemons_tls, enable_command=True, log_dir=tmp_path_factory.mktemp("logs")
    ) as cluster:
        yield cluster


@pytest.fixture
def address(cluster: LocalCluster) -> str:
    return cluster.addresses[0]


# ---- with the right certificate --------------------------------------------------------------


def test_tasks_and_large_data(cluster: LocalCluster, address: str, adas_tls: TLS) -> None:
    data = tasks.pattern(2_000_000)
    with Client(address, tls=adas_tls) as client:
        job = client.submit_calls(tasks.digest, [(data,) for _ in range(8)])
        assert len(set(job.results())) == 1
        assert client.submit(tasks.pattern, len(data)).result(TIMEOUT_S) == data
        ada = Access.of(tls=adas_tls)
        held = client.submit(tasks.square, 3)
        assert held.result(TIMEOUT_S) == 9
        status, body = ask(ada, address, "POST", "/v1/jobs", {"app": "noop", "tasks": [{}]})
        assert (status, body["user"]) == (202, "ada")
        argv = ["head", "-c", "100000", "/dev/zero"]
        job_id = ask(ada, address, "POST", "/v1/jobs", {"app": "command", "tasks": [{"payload": {"argv": argv}}]})[1][
            "id"
        ]
        (url,) = ask(ada, address, "GET", f"/v1/jobs/{job_id}/results")[1]["blob"]["urls"]
        assert url.startswith("https://")
        assert ask(ada, url.split("/")[2], "HEAD", "/" + url.split("/", 3)[3])[0] == 200
    # A stage's large result goes from node to node.
    with Client(cluster) as client:
        nodes = [f"node-{number}" for number in range(2)]
        from sparrow_py import CallStage, ResultOf

        made = CallStage("made", tasks.pattern, [(len(data),)], preferred={0: [nodes[0]]})
        used = CallStage("used", tasks.digest, [(ResultOf("made", 0),)], preferred={0: [nodes[1]]})
        assert client.submit_stages([made, used]).stage("used")[0].result(TIMEOUT_S) == tasks.digest(data)


async def test_asyncio(address: str, adas_tls: TLS) -> None:
    async with AsyncClient(address, tls=adas_tls) as client:
        assert await client.submit(tasks.square, 3) == 9


def test_the_command(address: str, adas_tls: TLS, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.frontends.test_cli import sparrow

    assert sparrow("nodes", "-s", address, *tls_flags(adas_tls)).exit_code == 0
    for name, path in (("CERT", adas_tls.cert), ("KEY", adas_tls.key), ("CA", adas_tls.ca)):
        monkeypatch.setenv(f"SPARROW_TLS_{name}", path)
    result = sparrow("jobs", "--json", "-s", address)
    assert json.loads(result.stdout) == {"jobs": []}
    with Client(address) as client:  # The library, too.
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


async def test_a_certificate_names_role_and_user(authority: Authority, address: str, adas_tls: TLS) -> None:
    ada = Access.of(tls=adas_tls)
    async with RawLinks(address) as raw:
        with pytest.raises(LinkError, match="role cluster; this is of role client, user 'ada'"):
            await raw.dial(hello("node", name="n"), ada)
        with pytest.raises(LinkError, match=r"'bob' is not .* 'ada'"):
            await raw.dial(hello("client", "bob"), ada)
        nobody = Access.of(tls=authority.issue("nobody", "somebody", "ada"))
        with pytest.raises(LinkError, match="O must be cluster, or client"):
            await raw.dial(hello("client", "ada"), nobody)
    status, body = ask(nobody, address, "GET", "/v1/jobs")
    assert status == 401
    assert "O must be" in body["error"]["message"]


# ---- with another, or none -------------------------------------------------------------------


@pytest.fixture(scope="module")
def strangers(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TLS]:
    """Certificates that the cluster does not take."""
    other = Authority(tmp_path_factory.mktemp("other"))
    forged = other.issue("forged", "cluster", "a daemon")
    return {
        "another authority's": TLS(forged.cert, forged.key, str(authority.file)),
        "expired": authority.issue("expired", "cluster", expired=True),
    }


@pytest.mark.parametrize("kind", ["another authority's", "expired"])
async def test_a_wrong_certificate(strangers: dict[str, TLS], address: str, kind: str) -> None:
    tls = strangers[kind]
    async with RawLinks(address) as raw:
        for role in ("client", "node"):
            with pytest.raises(LinkError, match=REFUSED):
                await raw.dial(hello(role, "ada", "n"), Access.of(tls=tls))
    with pytest.raises(OSError):
        ask(Access.of(tls=tls), address, "GET", "/livez")


async def test_no_certificate(daemons_tls: TLS, cluster: LocalCluster) -> None:
    """It is refused, and logged."""
    context = ssl.create_default_context(cafile=daemons_tls.ca)
    for daemon in (*cluster.addresses, cluster.node_processes[0].address):
        async with RawLinks(daemon) as raw:
            with pytest.raises(LinkError, match=REFUSED):
                await raw.dial(hello("client", "ada"), Access(current=lambda: context))
        with pytest.raises(OSError):
            ask(Access(current=lambda: context), daemon, "GET", "/livez")
    assert cluster._log_dir is not None
    log = cluster._log_dir / "node-0.log"  # The scheduler's may have its fill of other tests'.
    wait_until(lambda: "a TLS handshake failed: no certificate was shown (PEER_DID_NOT_RETURN" in log.read_text())


async def test_a_daemon_of_another_authority_or_name_is_not_believed(authority: Authority, tmp_path: Path) -> None:
    """Who dials does not tell its token to somebody whose certificate is not for the address that was dialled."""
    elsewhere = authority.issue("elsewhere", "cluster", host="127.0.0.2")
    with Daemon("scheduler", *tls_flags(elsewhere), log=tmp_path / "log") as daemon:
        async with RawLinks(daemon.address) as raw:
            with pytest.raises(LinkError, match=r"its certificate is not accepted here: IP address mismatch"):
                await raw.dial(hello("client", "ada"), Access.of(tls=elsewhere))
            other = Authority(tmp_path / "other")
            with pytest.raises(LinkError, match=r"its certificate is not accepted here: (self-signed|unable)"):
                await raw.dial(hello("client", "ada"), Access.of(tls=other.issue("o", "cluster")))


def scheduler_options(tls: TLS, token_file: Path | None = None) -> SchedulerOptions:
    tokens = None if token_file is None else str(token_file)
    return SchedulerOptions(port=0, tls_cert=tls.cert, tls_key=tls.key, tls_ca=tls.ca, token_file=tokens)


@contextlib.asynccontextmanager
async def listening(tls: TLS) -> AsyncIterator[tuple[Listener, Credentials]]:
    """A daemon's listener, in this process."""
    options = scheduler_options(tls)
    credentials = Credentials(options, dials=False)
    daemon = SimpleNamespace(options=options, why_not_ready=lambda: "")
    listener = Listener(make_app(daemon, credentials, lambda exemplars: []), options, credentials)
    await listener.start()
    try:
        yield listener, credentials
    finally:
        await listener.close()


@pytest.fixture
async def listener(daemons_tls: TLS) -> AsyncIterator[Listener]:
    async with listening(daemons_tls) as (listener, _):
        yield listener


@pytest.mark.parametrize("role", ["client", "somebody"])
@pytest.mark.parametrize("how", ["asyncio", "http.client"])
async def test_a_users_certificate_makes_no_daemon(authority: Authority, daemons_tls: TLS, role: str, how: str) -> None:
    """It is of our authority, and for the address that was dialled; but whoever has it is not told another's token."""
    heard: list[bytes] = []

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            heard.append(await reader.read())
        writer.close()

    context = server_context(authority.issue(f"impostor-{role}", role, "eve"))
    async with asyncio.timeout(TIMEOUT_S), await asyncio.start_server(impostor, "127.0.0.1", 0, ssl=context) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        access = Access.of(ADA, daemons_tls)
        if how == "asyncio":
            async with RawLinks(address) as raw:
                with pytest.raises(LinkError, match=r"its certificate is not accepted here: it is no daemon's"):
                    await raw.dial(hello("client", "ada"), access)
        else:
            with pytest.raises(ssl.SSLCertVerificationError, match="it is no daemon's"):
                await asyncio.to_thread(ask, access, address, "GET", "/livez")
    assert not any(heard)


async def test_a_handshake_that_stalls_ends_soon(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its end no other limit sees the connection."""
    assert TLS_HANDSHAKE_TIMEOUT_S <= 10
    monkeypatch.setattr(listener_module, "TLS_HANDSHAKE_TIMEOUT_S", 0.01)
    await listener.renew()
    host, _, port = listener.address.partition(":")
    for said in (b"", b"\x16\x03\x01"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_handshakes_that_fail_are_logged_and_not_each_of_very_many(
    listener: Listener, daemons_tls: TLS, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials_module, "refusals", SparingLog(credentials_module.log))
    host, _, port = listener.address.partition(":")
    for _ in range(2 * LINES_MAX):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
        writer.close()
    messages = [record.getMessage() for record in caplog.records if "a TLS handshake failed" in record.getMessage()]
    assert messages == ["a TLS handshake failed: a plain HTTP request (HTTP_REQUEST)"] * LINES_MAX


async def test_of_a_certificate_that_is_not_accepted_the_log_says_why(
    listener: Listener, strangers: dict[str, TLS], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials_module, "refusals", SparingLog(credentials_module.log))
    async with RawLinks(listener.address) as raw:
        with pytest.raises(LinkError):
            await raw.dial(hello("node", "", "n"), Access.of(tls=strangers["expired"]))
    assert "the certificate that was shown is not accepted: certificate has expired (CERTIFICATE_VERIFY" in caplog.text


@pytest.mark.rest
async def test_plain_to_tls_and_tls_to_plain(address: str, adas_tls: TLS, tmp_path: Path) -> None:
    async with RawLinks(address) as raw:
        with pytest.raises(LinkError, match=r"cannot be reached: .*\(does it ask for TLS\?\)"):
            await raw.dial(hello("client", "ada"))
    with pytest.raises(NoScheduler, match=r"\(does it ask for TLS\?\)"):
        Client(address, connect_timeout_s=ANSWER_S)
    with Daemon("scheduler", log=tmp_path / "plain.log") as plain:
        async with RawLinks(plain.address) as raw:
            with pytest.raises(LinkError, match="it does not speak TLS"):
                await raw.dial(hello("client", "ada"), Access.of(tls=adas_tls))
    with socket.create_connection((address.partition(":")[0], int(address.partition(":")[2])), TIMEOUT_S) as plain_tcp:
        plain_tcp.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in plain_tcp.recv(1000)


def test_the_command_says_so(address: str, adas_tls: TLS, tmp_path: Path) -> None:
    from tests.frontends.test_cli import sparrow

    assert "(does it ask for TLS?)" in sparrow("nodes", "-s", address).stderr
    with Daemon("scheduler", log=tmp_path / "plain.log") as plain:
        assert "it does not speak TLS" in sparrow("nodes", "-s", plain.address, *tls_flags(adas_tls)).stderr


def test_old_versions_are_not_spoken(address: str, adas_tls: TLS) -> None:
    host, _, port = address.partition(":")

    def connect(version: ssl.TLSVersion) -> str | None:
        context = ssl.create_default_context(cafile=adas_tls.ca)
        context.load_cert_chain(adas_tls.cert, adas_tls.key)
        context.maximum_version = version
        with (
            socket.create_connection((host, int(port)), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            return wrapped.version()

    assert connect(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises(OSError):
        connect(ssl.TLSVersion.TLSv1_2)


def test_daemons_end_cleanly(daemons_tls: TLS, adas_tls: TLS, tmp_path: Path) -> None:
    """With links and connections that stand: TLS wants a word more before it ends."""
    logs = [tmp_path / "scheduler.log", tmp_path / "node.log"]
    flags = tls_flags(daemons_tls)
    with (
        Daemon("scheduler", *flags, log=logs[0]) as scheduler,
        Daemon("node_monitor", *flags, "--scheduler", scheduler.address, "--slots", "1", log=logs[1]) as node,
        Client(scheduler.address, tls=adas_tls) as client,
    ):
        assert client.submit(tasks.pattern, 2_000_000).result(TIMEOUT_S) == tasks.pattern(2_000_000)
        for daemon in (node, scheduler):
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0
    for log in logs:
        assert "Traceback" not in log.read_text()


# ---- files -----------------------------------------------------------------------------------


def test_files_that_will_not_do(authority: Authority, daemons_tls: TLS, adas_tls: TLS, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no certificate")
    text.chmod(0o600)
    readable = tmp_path / "readable.key"
    readable.write_bytes(Path(daemons_tls.key).read_bytes())
    readable.chmod(0o644)
    for tls, option in (
        (TLS(daemons_tls.cert, adas_tls.key, daemons_tls.ca), "tls_cert"),
        (TLS(str(text), daemons_tls.key, daemons_tls.ca), "tls_cert"),
        (TLS(daemons_tls.cert, str(readable), daemons_tls.ca), "tls_key"),
        (TLS(daemons_tls.cert, daemons_tls.key, str(text)), "tls_ca"),
        (TLS(daemons_tls.cert, daemons_tls.key, "/no/such/file"), "tls_ca"),
    ):
        with pytest.raises(InvalidOption, match=option):
            Access.of(tls=tls)
    with pytest.raises(ClusterError, match=r"tls_key: .*chmod go-rwx"):
        LocalCluster(
            scheduler_options=tls_flags(TLS(daemons_tls.cert, str(readable), daemons_tls.ca)), log_dir=tmp_path / "logs"
        )


# ---- tokens as well --------------------------------------------------------------------------


def test_with_tokens_both_are_needed(authority: Authority, daemons_tls: TLS, adas_tls: TLS, tmp_path: Path) -> None:
    """The token says who one is; the certificate, whosever of the authority's it is, lets it be said."""
    tokens = usual_tokens(tmp_path / "tokens")
    with LocalCluster(slots=1, tls=daemons_tls, token_file=tokens) as cluster:
        address = cluster.addresses[0]
        with Client(cluster) as client:
            assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
        assert "the token is missing or wrong" in why_refused(address, Access.of(tls=adas_tls))
        assert "does it ask for TLS" in why_refused(address, Access(ADA))
        assert ask(Access.of(tls=daemons_tls), address, "GET", "/v1/jobs")[0] == 401
        with Client(address, token=ADA, tls=authority.issue("b", "client", "bob")) as client:
            assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
            assert client._session.user == "ada"


# ---- rotation --------------------------------------------------------------------------------


class LiveFiles:
    """Files of TLS that are replaced while they are in use."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.tls = TLS(*(str(directory / name) for name in ("cert", "key", "ca")))

    def put(self, tls: TLS, *authorities: Authority) -> None:
        """This certificate and its key, and these to trust."""
        trusted = b"".join(authority.file.read_bytes() for authority in authorities)
        self.put_cert(Path(tls.cert).read_bytes())
        for name, data in ((self.tls.key, Path(tls.key).read_bytes()), (self.tls.ca, trusted)):
            self._replace(name, data)

    def put_cert(self, data: bytes) -> None:
        self._replace(self.tls.cert, data)

    @staticmethod
    def _replace(name: str, data: bytes) -> None:
        fresh = Path(f"{name}.new")
        fresh.touch(0o600)
        fresh.write_bytes(data)
        fresh.rename(name)


@pytest.fixture
def live(tmp_path: Path) -> LiveFiles:
    return LiveFiles(tmp_path / "live")


async def test_a_client_follows_the_exchange_of_the_authority(live: LiveFiles, tmp_path: Path) -> None:
    """Without a signal, as whoever dials with its access asks for the files of now."""
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    before, after = (
        {role: authority.issue(role, role, "ada") for role in ("cluster", "client")} for authority in (old, new)
    )
    daemons = LiveFiles(tmp_path / "daemons")
    daemons.put(before["cluster"], old)
    live.put(before["client"], old)
    async with listening(daemons.tls) as (listener, credentials), aiohttp.ClientSession() as session:
        access = Access.of(tls=live.tls)
        for issued, authorities in ((before, (old, new)), (after, (old, new)), (after, (new,))):
            daemons.put(issued["cluster"], *authorities)
            live.put(issued["client"], *authorities)
            assert credentials.reload()
            await listener.renew()
            assert (await asyncio.to_thread(ask, access, listener.address, "GET", "/livez"))[0] == 200
            async with session.get(access.url(listener.address, "/livez"), ssl=access.ssl) as response:
                assert response.status == 200


@pytest.fixture
def unfit(authority: Authority, adas_tls: TLS, tmp_path: Path) -> dict[str, tuple[TLS, Authority, str]]:
    """Files that can be read and will not do: what they are, whom they trust, and what is said of them."""
    good, soon = authority.issue("good", "cluster"), authority.issue("soon", "cluster", early=True)
    expired = authority.issue("expired", "cluster", expired=True)
    return {
        "expired": (expired, authority, r"it expired on [-:\d ]+ UTC"),
        "not yet valid": (soon, authority, r"it is not valid before [-:\d ]+ UTC"),
        "of another authority": (good, Authority(tmp_path / "other"), "unable to get local issuer certificate"),
        "a user's": (adas_tls, authority, "it is no daemon's, but of role client, user 'ada'"),
    }


@pytest.mark.parametrize("kind", ["expired", "not yet valid", "of another authority", "a user's"])
def test_no_daemon_starts_with_what_others_would_not_take(
    kind: str, unfit: dict[str, tuple[TLS, Authority, str]], live: LiveFiles
) -> None:
    cert, trusted, why = unfit[kind]
    live.put(cert, trusted)
    with pytest.raises(InvalidOption, match=rf"^tls_cert: .*/cert' .*{why}\)$"):
        Credentials(scheduler_options(live.tls), dials=False)


@pytest.mark.parametrize("kind", ["expired", "not yet valid", "of another authority", "a user's"])
def test_what_others_would_not_take_is_not_taken_on_sighup(
    kind: str,
    unfit: dict[str, tuple[TLS, Authority, str]],
    live: LiveFiles,
    daemons_tls: TLS,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    live.put(daemons_tls, authority)
    credentials = Credentials(scheduler_options(live.tls), dials=False)
    before = credentials.server_context, credentials.access
    cert, trusted, why = unfit[kind]
    live.put(cert, trusted)
    assert not credentials.reload()
    assert (credentials.server_context, credentials.access) == before
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert re.search(rf"stay as they were: tls_cert: .*/cert' .*{why}\)$", said)


def test_a_token_is_withdrawn_though_the_certificate_has_expired(
    live: LiveFiles,
    daemons_tls: TLS,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is in use: to leave it as it was would change nothing."""
    live.put(daemons_tls, authority)
    tokens = Path(usual_tokens(tmp_path / "tokens"))
    credentials = Credentials(scheduler_options(live.tls, tokens), dials=False)
    assert credentials.principal(ADA, None).user == "ada"
    tokens.write_text("".join(line for line in tokens.read_text().splitlines(keepends=True) if ADA not in line))

    def expired(tls: TLS, *, dials: bool) -> None:
        raise InvalidOption("tls_cert", tls.cert, "one that has not expired")

    monkeypatch.setattr(credentials_module, "check_daemons_certificate", expired)
    assert credentials.reload()
    assert "in use will not do any more: tls_cert" in caplog.text
    with pytest.raises(AccessDenied):
        credentials.principal(ADA, None)


def test_a_certificate_of_servers_does_for_who_need_not_dial(
    live: LiveFiles, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler serves without its own dials, a node monitor does not."""
    of_servers = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    with monkeypatch.context() as patched:
        patched.setattr(x509, "ExtendedKeyUsage", lambda usages: of_servers)
        live.put(authority.issue("server", "cluster"), authority)
    Credentials(scheduler_options(live.tls), dials=False)
    with pytest.raises(InvalidOption, match="unsuitable certificate purpose"):
        Credentials(scheduler_options(live.tls), dials=True)


def test_a_client_keeps_what_it_has_if_its_new_files_will_not_do(
    live: LiveFiles, daemons_tls: TLS, adas_tls: TLS, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    live.put(daemons_tls, authority)
    access = Access.of(tls=live.tls)
    before = access.context
    live.put_cert(Path(adas_tls.cert).read_bytes())  # Of another key.
    assert access.context is before
    assert access.context is before
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "stay as they were: tls_cert: " in said
    live.put(adas_tls, authority)
    assert access.context is not before


@pytest.mark.rest
def test_certificates_and_authorities_are_read_again(live: LiveFiles, tmp_path: Path) -> None:
    """A new authority beside the old one, new certificates, then the old one goes: links that stand go on."""
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    before, after = old.issue("d", "cluster"), new.issue("d", "cluster")
    daemons = LiveFiles(tmp_path / "daemons")
    daemons.put(before, old)
    eves_old, eves_new = old.issue("eve", "client", "eve"), new.issue("eve", "client", "eve")
    live.put(eves_old, old)
    logs = tmp_path / "logs"
    adas_old, adas_new = old.issue("ada", "client", "ada"), new.issue("ada", "client", "ada")
    with LocalCluster(slots=1, tls=daemons.tls, log_dir=logs, processes="separate") as cluster:
        address = cluster.addresses[0]

        def reread() -> None:
            for process, name in (
                (cluster.scheduler_processes[0], "scheduler-0"),
                (cluster.node_processes[0], "node-0"),
            ):
                log = logs / f"{name}.log"
                count = log.read_text().count("were read again")
                process.process.send_signal(signal.SIGHUP)
                wait_until(lambda log=log, count=count: log.read_text().count("were read again") > count)

        with Client(address, tls=adas_old) as standing, Client(address, tls=live.tls) as following:
            for cert, authorities in ((before, (old, new)), (after, (old, new)), (after, (new,))):
                daemons.put(cert, *authorities)
                live.put(eves_new if cert is after else eves_old, *authorities)
                reread()
                assert standing.submit(tasks.square, 3).result(TIMEOUT_S) == 9
            # It has fetched nothing yet, so that no connection to the node stands.
            assert following.submit(tasks.pattern, 2_000_000).result(TIMEOUT_S) == tasks.pattern(2_000_000)
            with Client(address, tls=adas_new) as client:
                assert client.submit(tasks.pattern, 2_000_000).result(TIMEOUT_S) == tasks.pattern(2_000_000)
            assert "is not accepted here" in why_refused(address, Access.of(tls=adas_old))
            # It would believe the daemon, but is not believed.
            half = TLS(adas_old.cert, adas_old.key, adas_new.ca)
            assert REFUSED in why_refused(address, Access.of(tls=half))
            Path(daemons.tls.ca).write_text("spoilt")
            cluster.scheduler_processes[0].process.send_signal(signal.SIGHUP)
            wait_until(lambda: "stay as they were" in (logs / "scheduler-0.log").read_text())
            with Client(address, tls=adas_new) as client:
                assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
