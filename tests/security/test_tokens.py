"""Tokens of daemons that run: which files they take, and how secrets are replaced while they work."""

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from click import ClickException

from node_monitor.options import NodeMonitorOptions
from scheduler.options import SchedulerOptions
from sparrow_py import AsyncClient, Client, LocalCluster, TaskStatus
from sparrow_py.access.credentials import Access
from sparrow_py.daemon.options import parse
from sparrow_py.embedded.daemon_process import DaemonProcess
from sparrow_py.errors import ClusterError
from sparrow_py.wire import messages as m
from tests.support import tasks
from tests.support.guarded import ADA, BOB, CLUSTER, NEXT_CLUSTER, ask, token_file, usual_tokens
from tests.support.raw_links import RawLinks, hello, why_refused
from tests.support.waiting import TIMEOUT_S, wait_until

NEXT_ADA = "adas-secret-".ljust(40, "2")
READ_AGAIN = "were read again"
STAY = "stay as they were"


class Rotating:
    """A cluster, its token file and its logs."""

    def __init__(self, directory: Path) -> None:
        self.tokens = usual_tokens(directory / "tokens")
        self.log_dir = directory / "logs"
        self.cluster = LocalCluster(slots=2, token_file=self.tokens, log_dir=self.log_dir, processes="separate")
        self.address = self.cluster.addresses[0]
        (self.scheduler,) = self.cluster.scheduler_processes
        (self.node,) = self.cluster.node_processes

    def log(self, daemon: DaemonProcess) -> str:
        return (self.log_dir / ("scheduler-0.log" if daemon is self.scheduler else "node-0.log")).read_text()

    def have_reread(self, *daemons: DaemonProcess, what: str = READ_AGAIN) -> None:
        """Have daemons read the file again, one after the other, and wait until they have."""
        for daemon in daemons:
            before = self.log(daemon).count(what)
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda daemon=daemon, before=before: self.log(daemon).count(what) > before, what)

    def linked(self, secret: str) -> bool:
        return [node["id"] for node in ask(Access(secret), self.address, "GET", "/v1/nodes")[1]["nodes"]] == ["node-0"]


@pytest.fixture
def rotating(tmp_path: Path) -> Iterator[Rotating]:
    rotating = Rotating(tmp_path)
    with rotating.cluster:
        yield rotating


# ---- what is taken at the start --------------------------------------------------------------


@pytest.mark.parametrize("daemon", [SchedulerOptions, NodeMonitorOptions])
def test_beyond_loopback_takes_a_secret_or_tls(daemon: type, tmp_path: Path) -> None:
    with pytest.raises(ClickException, match=r"host: '0\.0\.0\.0' .*--token-file or SPARROW_TOKEN.*--tls-cert"):
        parse(daemon, ["--host", "0.0.0.0"])
    path = usual_tokens(tmp_path / "tokens")
    assert parse(daemon, ["--host", "0.0.0.0", "--token-file", str(path)]).guarded
    files = ["--tls-cert", "c", "--tls-key", "k", "--tls-ca", "a"]
    assert parse(daemon, ["--host", "0.0.0.0", *files]).guarded
    with pytest.raises(ClickException, match="go together"):
        parse(daemon, ["--host", "0.0.0.0", *files[:4]])


def test_a_file_that_others_may_read_keeps_a_daemon_from_starting(tmp_path: Path) -> None:
    path = usual_tokens(tmp_path / "tokens")
    path.chmod(0o644)
    with pytest.raises(ClickException, match="chmod go-rwx"):
        parse(SchedulerOptions, ["--token-file", str(path)])


def test_a_node_monitor_must_know_a_secret_to_dial_with(tmp_path: Path) -> None:
    path = token_file(tmp_path / "tokens", f"client ada {ADA}")
    with pytest.raises(ClusterError, match=r"token_file: .* to dial with"):
        LocalCluster(node_monitors=1, node_options=["--token-file", str(path)], log_dir=tmp_path / "logs")


# ---- reading again ---------------------------------------------------------------------------


@pytest.mark.rest
def test_both_secrets_under_load_then_one_is_withdrawn(rotating: Rotating) -> None:
    """In three steps, each in any order of daemons: the new secrets are valid, they are shown, the old ones are not
    valid any more. No task is started twice, and no link breaks but that of who did not take the new secret."""
    both, reverse = (rotating.scheduler, rotating.node), (rotating.node, rotating.scheduler)
    with (
        contextlib.closing(Client(rotating.address, token=ADA)) as client,
        contextlib.closing(Client(rotating.address, token=ADA)) as left_behind,
    ):
        jobs = [client.submit_calls(tasks.square, [(n,) for n in range(200)])]
        old, new = ([f"cluster {one}", f"client ada {two}"] for one, two in ((CLUSTER, ADA), (NEXT_CLUSTER, NEXT_ADA)))
        token_file(rotating.tokens, *old, *new)
        rotating.have_reread(*reverse)
        for secret in (ADA, NEXT_ADA):
            with Client(rotating.address, token=secret) as another:
                assert another.submit(tasks.square, 3).result(TIMEOUT_S) == 9
        jobs.append(client.submit_calls(tasks.square, [(n,) for n in range(200)]))
        client.renew_token(NEXT_ADA)
        assert left_behind.submit(tasks.square, 4).result(TIMEOUT_S) == 16
        token_file(rotating.tokens, *new, *old)
        rotating.have_reread(*reverse)
        jobs.append(client.submit_calls(tasks.square, [(n,) for n in range(200)]))
        token_file(rotating.tokens, *new)
        rotating.have_reread(*both)
        jobs.append(client.submit_calls(tasks.square, [(n,) for n in range(200)]))
        for job in jobs:
            assert job.results() == [n * n for n in range(200)]
            assert {(task.status, task.attempts) for task in job.report(TIMEOUT_S).tasks} == {(TaskStatus.FINISHED, 1)}
        assert client.submit(len, b"x" * 2_000_000).result(TIMEOUT_S) == 2_000_000
        log = rotating.log(rotating.scheduler)
        assert log.count("is cut off: its token was withdrawn") == 1
        assert "ada (role client, user 'ada') is cut off" in log
        assert "node monitor node-0 gone" not in log
        wait_until(lambda: "token is missing or wrong" in rotating.log(rotating.scheduler), "a dial in vain")
    assert ask(Access(ADA), rotating.address, "GET", "/v1/jobs")[0] == 401
    assert ask(Access(CLUSTER), rotating.node.address, "GET", "/v1/nodes")[0] == 401
    assert ask(Access(NEXT_CLUSTER), rotating.node.address, "GET", "/v1/nodes")[0] == 200
    assert "missing or wrong" in why_refused(rotating.address, Access(ADA))
    everything = rotating.log(rotating.scheduler) + rotating.log(rotating.node)
    assert not [secret for secret in (ADA, NEXT_ADA, CLUSTER, NEXT_CLUSTER) if secret in everything]


def test_a_node_monitor_that_did_not_take_the_new_secret_is_cut_off(rotating: Rotating) -> None:
    token_file(rotating.tokens, f"cluster {NEXT_CLUSTER}")
    rotating.have_reread(rotating.scheduler)
    wait_until(lambda: not rotating.linked(NEXT_CLUSTER), "the link to break")
    rotating.have_reread(rotating.node)  # It dials again by itself, with what is in the file now.
    wait_until(lambda: rotating.linked(NEXT_CLUSTER), "the link to stand")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("clutser secret\n"),
        lambda path: path.write_text(""),
        lambda path: path.unlink(),
        lambda path: path.chmod(0o644),
    ],
    ids=["wrong", "empty", "gone", "readable"],
)
def test_a_file_that_will_not_do_changes_nothing(rotating: Rotating, spoil: Callable[[Path], Any]) -> None:
    with Client(rotating.address, token=ADA) as client:
        spoil(rotating.tokens)
        rotating.have_reread(rotating.scheduler, rotating.node, what=STAY)
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
    assert rotating.linked(CLUSTER)
    assert ask(Access(ADA), rotating.address, "GET", "/v1/jobs")[0] == 200
    usual_tokens(rotating.tokens)
    rotating.have_reread(rotating.scheduler)
    assert rotating.linked(CLUSTER)


def test_a_file_without_a_secret_to_dial_with_changes_nothing_at_a_node(rotating: Rotating) -> None:
    token_file(rotating.tokens, f"client ada {ADA}")
    rotating.have_reread(rotating.node, what=STAY)
    assert "to dial with" in rotating.log(rotating.node)
    assert ask(Access(CLUSTER), rotating.node.address, "GET", "/v1/nodes")[0] == 200


def test_readers_of_results_go_with_their_token(rotating: Rotating) -> None:
    """What a withdrawn token has begun to follow breaks off; the job goes on, for its user's other tokens."""
    ada = Access(ADA)
    waits = {"job_id": "j", "app": "nowhere", "tasks": [{}], "wait_for_nodes_s": 1000}
    assert ask(ada, rotating.address, "POST", "/v1/jobs", waits)[0] == 202
    connection = ada.http_connection(rotating.address, TIMEOUT_S)
    connection.request("GET", "/v1/jobs/j/results", headers=ada.headers())
    response = connection.getresponse()
    assert response.status == 200
    token_file(rotating.tokens, f"cluster {CLUSTER}", f"client ada {NEXT_ADA}")
    rotating.have_reread(rotating.scheduler)
    with pytest.raises((OSError, HTTPException)):
        response.read()
    connection.close()
    assert ask(Access(NEXT_ADA), rotating.address, "GET", "/v1/jobs/j")[1]["state"] == "running"


async def test_renewing_a_token_makes_nobody_another(guarded: LocalCluster) -> None:
    """A token of another user or role ends the link, one that is not known changes nothing."""
    address = guarded.addresses[0]
    async with RawLinks(address) as raw:
        for other in (BOB, CLUSTER):
            link = await raw.dial(hello("client", "ada"), Access(ADA))
            link.send(m.Renew(other))
            assert "the renewed token is of" in (await link.until(m.Goodbye)).reason
        link = await raw.dial(hello("client", "ada"), Access(ADA))
        link.send(m.Renew("x" * 40))
        link.send(m.Renew(ADA))
        link.send(m.SubmitJob("j", 0, "", [m.Stage("noop", 0, b"", "", 2.0, 0, None)], 1, False, None, False))
        await link.until(m.JobEnded)


async def test_an_asyncio_client_renews_its_token(guarded: LocalCluster) -> None:
    async with AsyncClient(guarded.addresses, token=ADA) as client:
        client.renew_token(ADA)
        assert await client.submit(tasks.square, 3) == 9


def test_the_command_shows_the_first_secret_of_its_file(guarded: LocalCluster, tmp_path: Path) -> None:
    from tests.frontends.test_cli import sparrow

    path = token_file(tmp_path / "mine", f"client ada {ADA}", f"client ada {BOB}")
    result = sparrow("jobs", "--json", "-s", guarded.addresses[0], "--token-file", str(path))
    assert json.loads(result.stdout) == {"jobs": []}
