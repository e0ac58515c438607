"""Clusters that ask who one is: token files, certificates, and requests with them."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import trustme

from sparrow_py import TLS
from sparrow_py.access.credentials import OPEN, Access
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from sparrow_py.wire.connector import Connector
from sparrow_py.wire.dial import dial
from sparrow_py.wire.links import Link
from tests.support.waiting import TIMEOUT_S

CLUSTER, NEXT_CLUSTER = "cluster-secret-".ljust(40, "1"), "cluster-secret-".ljust(40, "2")
ADA, BOB = "adas-secret-".ljust(40, "1"), "bobs-secret-".ljust(40, "1")
NODE = m.NodeInfo(1, {}, {}, {"noop": ""}, "127.0.0.1:1")


def token_file(path: Path, *lines: str) -> Path:
    """A token file with these lines, for our eyes only; one that was there is replaced in one step."""
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text("\n".join(lines) + "\n")
    return new.rename(path)


def usual_tokens(path: Path) -> Path:
    """A token of the cluster, one of ada's and one of bob's."""
    return token_file(path, f"cluster {CLUSTER}", f"client ada {ADA}", f"client bob {BOB}")


class Authority:
    """Signs certificates, into files in its directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._ca = trustme.CA(organization_name="an authority for tests")
        self.file = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(self, name: str, role: str, user: str = "-", *, host: str = "127.0.0.1", expired: bool = False) -> TLS:
        """The files of one certificate of this role (O) and user (CN)."""
        now = datetime.now(UTC)
        until = now - timedelta(days=1) if expired else now + timedelta(days=1)
        issued = self._ca.issue_cert(
            host, common_name=user, organization_name=role, not_before=now - timedelta(days=2), not_after=until
        )
        cert, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        key.touch(0o600)
        issued.private_key_pem.write_to_path(key)
        return TLS(str(cert), str(key), str(self.file))


def tls_flags(tls: TLS) -> list[str]:
    """A daemon's flags for these files."""
    return ["--tls-cert", tls.cert, "--tls-key", tls.key, "--tls-ca", tls.ca]


def ask(
    access: Access, address: str, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    """(status, JSON) of a daemon's answer."""
    connection = access.http_connection(address, TIMEOUT_S)
    try:
        data = None if body is None else json.dumps(body)
        given = {"Content-Type": "application/json"} if data else {}
        connection.request(method, path, data, {**access.headers(), **given, **headers})
        response = connection.getresponse()
        text = response.read().decode()
        return response.status, json.loads(text) if text.startswith("{") else {"text": text}
    finally:
        connection.close()


def hello(role: str, user: str = "", name: str = "") -> m.Hello:
    """What a client or a node of one slot says."""
    return m.Hello(m.PROTOCOL_VERSION, role, name, user, "", NODE if role == "node" else None)


class RawLinks:
    """Links whose messages a test makes up itself. `async with RawLinks(address) as raw: link = await raw.dial(…)`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._open: list[Link] = []

    async def __aenter__(self) -> "RawLinks":
        self._session = aiohttp.ClientSession(connector=Connector())
        return self

    async def __aexit__(self, *_: object) -> None:
        for link in self._open:
            await link.aclose("the test is over")
        await self._session.close()

    async def dial(self, first: m.Hello, access: Access = OPEN) -> "RawLink":
        decode = m.FrameDecoder(m.ToNode if first.role == "node" else m.ToClient)
        link, welcome = await dial(self._session, self.address, first, decode, heartbeat_s=TIMEOUT_S, access=access)
        self._open.append(link)
        return RawLink(link, welcome)


def why_refused(address: str, access: Access) -> str:
    """Why ada cannot link with this, at once: a client would try again for a while."""

    async def dial() -> str:
        async with RawLinks(address) as raw:
            try:
                await raw.dial(hello("client", "ada"), access)
            except LinkError as error:
                return str(error)
        raise AssertionError(f"{access} was welcome")

    return asyncio.run(dial())


class RawLink:
    """One of them, and all that has come over it."""

    def __init__(self, link: Link, welcome: m.Welcome) -> None:
        self.welcome = welcome
        self.came: list[Any] = []
        self.send = link.send
        self._batches: asyncio.Queue[list[Any] | None] = asyncio.Queue()
        self._listening = asyncio.ensure_future(self._listen(link))

    async def _listen(self, link: Link) -> None:
        try:
            link.listen(self._batches.put_nowait)
            await link.ended()
        finally:
            self._batches.put_nowait(None)

    async def until(self, kind: type) -> Any:
        """The next message of this kind; `AssertionError` if the link ends without one."""
        async with asyncio.timeout(TIMEOUT_S):
            while (batch := await self._batches.get()) is not None:
                self.came += batch
                found = next((message for message in batch if type(message) is kind), None)
                if found is not None:
                    return found
        raise AssertionError(f"no {kind.__name__} came, but {self.came}")


def job_message(job: str, tasks: int = 1, epoch: int = 0) -> m.SubmitJob:
    """A job of no-ops."""
    stage = m.Stage("noop", tasks, b"", "", 2.0, 0, None)
    return m.SubmitJob(job, epoch, "", [stage], 3, False, None, False)
