"""What a client's token does not open: other users' jobs, nodes, and whatever a node may say."""

import asyncio
import hashlib
import os
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from sparrow_py import BlobRef, Client, JobSpec, LocalCluster, NoScheduler, TaskLost
from sparrow_py.access.credentials import Access
from sparrow_py.access.principals import BLOB_KEY
from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support import tasks
from tests.support.guarded import ADA, BOB, CLUSTER, ask
from tests.support.raw_links import RawLinks, hello, job_message
from tests.support.waiting import TIMEOUT_S, wait_until

WAITS = {"app": "command", "tasks": [{"payload": {"argv": ["sleep", "1000"]}}]}


@pytest.fixture
def address(guarded: LocalCluster) -> str:
    return guarded.addresses[0]


def test_tasks_of_an_embedded_cluster_have_the_environment_of_who_made_it(guarded: LocalCluster) -> None:
    """Its tokens, too, are that user's own; elsewhere tokens mean that tasks may be others'."""
    with Client(guarded) as client:
        assert client.submit(os.getenv, "PYTEST_VERSION").result(TIMEOUT_S) == os.environ["PYTEST_VERSION"]


@pytest.fixture
def node_address(guarded: LocalCluster) -> str:
    return guarded.node_processes[0].address


# ---- no token --------------------------------------------------------------------------------

PATHS = [
    ("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/jobs/j"), ("DELETE", "/v1/jobs/j"),
    ("GET", "/v1/jobs/j/results"), ("GET", "/v1/nodes"), ("POST", "/v1/nodes/state"),
    ("GET", "/v1/history"), ("GET", "/v1/events"), ("GET", "/v1/state"), ("GET", "/v1/jobs/j/timeline"),
    ("GET", "/v1/schedulers"), ("GET", "/v1/session"),
    ("GET", "/v1/jobs/j/explain"), ("GET", "/v1/scheduler"), ("POST", "/v1/lead"), ("GET", "/v1/flow/problem"),
    ("GET", "/v1/blobs/" + "a" * 64), ("PUT", "/v1/blobs/" + "a" * 64),
    ("HEAD", "/v1/blobs/" + "a" * 64), ("GET", "/metrics"), ("GET", "/openapi.json"),
    ("GET", "/nothing"), ("GET", "//livez"), ("GET", "/livez/"), ("GET", "/v1/../livez"),
]  # fmt: skip


@pytest.mark.parametrize("secret", ["", "wrong" * 10, CLUSTER[:-1], CLUSTER + "x", ADA.upper(), BLOB_KEY + "0" * 64])
def test_nothing_is_answered_without_a_token(address: str, node_address: str, secret: str) -> None:
    for daemon in (address, node_address):
        for method, path in PATHS:
            status, body = ask(Access(secret), daemon, method, path)
            assert status == 401, (method, path, body)
        assert ask(Access(secret), daemon, "GET", "/livez")[0] == 200


async def test_no_link_without_a_token(address: str) -> None:
    async with RawLinks(address) as raw:
        for role in ("client", "node"):
            for secret in ("", "wrong" * 10, CLUSTER[:-1]):
                with pytest.raises(LinkError, match="the token is missing or wrong"):
                    await raw.dial(hello(role, "ada", "n"), Access(secret))


# ---- roles -----------------------------------------------------------------------------------


async def test_a_clients_token_does_not_link_as_a_node(address: str, ada: Access) -> None:
    async with RawLinks(address) as raw:
        with pytest.raises(LinkError, match=r"as a node takes .* of role cluster; this is of role client, user 'ada'"):
            await raw.dial(hello("node", name="n"), ada)
        with pytest.raises(LinkError, match="role"):
            await raw.dial(hello("operator", "ada"), ada)


def test_a_client_is_its_tokens_user(address: str) -> None:
    with Client(address, token=ADA) as client:
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
    with Client(address, token=ADA, user="ada") as client:
        job = client.submit_job(JobSpec([b""], app="noop"))
        assert job.report(TIMEOUT_S).tasks[0].status is TaskStatus.FINISHED
    with pytest.raises(NoScheduler, match=r"'bob' is not the user of this token .* 'ada'"):
        Client(address, token=ADA, user="bob", connect_timeout_s=3600.0)  # It does not wait for another answer.
    with Client(address, token=CLUSTER, user="bob") as client:  # The operator may act for anybody.
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


async def test_the_welcome_says_whose_the_jobs_are(address: str, ada: Access, operator: Access) -> None:
    unstated = hello("client", "root")
    unstated.user_stated = False
    async with RawLinks(address) as raw:
        assert (await raw.dial(unstated, ada)).welcome.user == "ada"
        assert (await raw.dial(unstated, operator)).welcome.user == "root"
        with pytest.raises(LinkError, match="'root' is not"):
            await raw.dial(hello("client", "root"), ada)


def test_nodes_are_the_operators(node_address: str, ada: Access, operator: Access) -> None:
    for state in ("cordoned", "draining", "ready"):
        status, body = ask(ada, node_address, "POST", "/v1/nodes/state", {"state": state})
        assert status == 403
        assert "role cluster; this is of role client, user 'ada'" in body["error"]["message"]
    assert ask(ada, node_address, "GET", "/v1/nodes")[1]["nodes"][0]["state"] == "ready"
    assert ask(operator, node_address, "POST", "/v1/nodes/state", {"state": "ready"})[0] == 200


def test_who_leads_is_the_operators(address: str, ada: Access, operator: Access) -> None:
    status, body = ask(ada, address, "POST", "/v1/lead")
    assert status == 403
    assert "role cluster; this is of role client, user 'ada'" in body["error"]["message"]
    status, body = ask(operator, address, "POST", "/v1/lead")
    assert (status, body["error"]["message"]) == (409, "plane sparrow has no leader: each of its schedulers takes jobs")


def test_what_is_solved_is_the_operators(address: str, ada: Access, operator: Access) -> None:
    assert ask(ada, address, "GET", "/v1/flow/problem")[0] == 403
    status, body = ask(operator, address, "GET", "/v1/flow/problem")
    assert (status, body["error"]["message"]) == (404, "policy sparrow solves no flow network")


def test_any_token_reads_metrics_and_nodes(address: str, ada: Access) -> None:
    assert ask(ada, address, "GET", "/metrics")[0] == 200
    assert ask(ada, address, "GET", "/v1/scheduler")[1]["policy"] == "sparrow"
    assert "node-0" in [node["id"] for node in ask(ada, address, "GET", "/v1/nodes")[1]["nodes"]]


# ---- another user's jobs ---------------------------------------------------------------------


def test_another_users_job_over_http(address: str, ada: Access, bob: Access, operator: Access) -> None:
    status, job = ask(ada, address, "POST", "/v1/jobs", {**WAITS, "job_id": "adas"})
    assert (status, job["user"]) == (202, "ada")
    for method, path in (
        ("GET", "/v1/jobs/{}"), ("DELETE", "/v1/jobs/{}?running=true"), ("GET", "/v1/jobs/{}/results"),
        ("GET", "/v1/jobs/{}/explain"),
    ):  # fmt: skip
        real, none = ask(bob, address, method, path.format("adas")), ask(bob, address, method, path.format("none"))
        assert real[0] == 404
        assert real[1]["error"]["message"].replace("adas", "none") == none[1]["error"]["message"]
    assert not [each for each in ask(bob, address, "GET", "/v1/jobs?ended=true")[1]["jobs"] if each["user"] != "bob"]
    assert ask(bob, address, "POST", "/v1/jobs", {**WAITS, "job_id": "adas"})[0] == 409
    assert ask(ada, address, "GET", "/v1/jobs/adas")[1]["state"] == "running"  # Nothing of it has come to harm.
    assert "adas" in [each["id"] for each in ask(operator, address, "GET", "/v1/jobs")[1]["jobs"]]
    assert ask(operator, address, "GET", "/v1/jobs/adas")[0] == 200
    assert ask(ada, address, "DELETE", "/v1/jobs/adas?running=true")[0] == 202
    assert ask(ada, address, "GET", "/v1/jobs/adas/results")[1]["status"] == "cancelled"  # Once it has ended:
    for method, path, told in (("DELETE", "/v1/jobs/adas", 409), ("GET", "/v1/jobs/adas/results", 200)):
        assert ask(ada, address, method, path)[0] == told
        assert ask(bob, address, method, path)[0] == 404


def test_submitting_for_another_over_http(address: str, ada: Access, operator: Access) -> None:
    noop = {"app": "noop", "tasks": [{}]}
    status, body = ask(ada, address, "POST", "/v1/jobs", {**noop, "user": "bob"})
    assert (status, body["error"]["field"]) == (403, "user")
    assert "'bob'" in body["error"]["message"]
    assert "'ada'" in body["error"]["message"]
    assert ask(ada, address, "POST", "/v1/jobs?default_user=bob", noop)[1]["user"] == "ada"
    assert ask(operator, address, "POST", "/v1/jobs?default_user=bob", noop)[1]["user"] == "bob"
    assert ask(operator, address, "POST", "/v1/jobs", noop)[1]["user"] == "http"
    assert ask(operator, address, "POST", "/v1/jobs?default_user=", noop)[0] == 400


def test_another_users_job_that_came_over_a_link(address: str, ada: Access, bob: Access, gate: Path) -> None:
    with Client(address, token=ADA) as client:
        future = client.submit(tasks.hold, gate, "held")
        job = client.submit_job(JobSpec([b""], app="noop", job_id="over-a-link"))
        job.results()
        (held,) = ask(ada, address, "GET", "/v1/jobs")[1]["jobs"]
        assert ask(bob, address, "GET", "/v1/jobs")[1]["jobs"] == []
        for method in ("GET", "DELETE"):
            assert ask(bob, address, method, f"/v1/jobs/{held['id']}")[0] == 404
        gate.touch()
        future.result(TIMEOUT_S)


async def test_another_users_job_over_a_link(address: str, ada: Access, bob: Access) -> None:
    """Bob's link says all that a client can say, about ada's job."""
    async with RawLinks(address) as raw:
        hers = await raw.dial(hello("client", "ada"), ada)
        hers.send(job_message("hers", tasks=2))
        await hers.until(m.JobAccepted)
        his = await raw.dial(hello("client", "bob"), bob)
        for message in (
            m.AddTasks("hers", 0, [b"", b""]), m.CancelTasks("hers", [0], running=True),
            m.CancelJob("hers", running=True), m.Known("hers", [], {0: 3}), m.BlobAt("hers", BlobRef("a" * 64, 0, ())),
        ):  # fmt: skip
            his.send(message)
        for epoch in (0, 7):
            his.send(job_message("hers", epoch=epoch))
            refused = await his.until(m.JobRefused)
            assert (refused.job, refused.field) == ("hers", "job_id")
        hers.send(m.AddTasks("hers", 0, [b"", b""]))
        await hers.until(m.JobEnded)
        outcomes = [message for message in hers.came if type(message) is m.Outcome]
        assert [outcome.status for outcome in outcomes] == [TaskStatus.FINISHED] * 2
        assert {type(message) for message in his.came} == {m.JobRefused}


# ---- forged and replayed reports -------------------------------------------------------------


@pytest.mark.parametrize(
    "forged",
    [
        m.Report("hers", 0, 1, TaskStatus.FINISHED, b"forged", "", None, None),
        m.GetTasks(1, 1, 1),
        m.HandBack("hers", 1, "no"),
        m.Claimed("hers", 0, []),
        m.Fenced("hers", 9),
        m.NodeState("draining", "no"),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_a_client_cannot_say_what_nodes_say(address: str, ada: Access, forged: m.Message) -> None:
    async with RawLinks(address) as raw:
        link = await raw.dial(hello("client", "ada"), ada)
        link.send(forged)
        assert "malformed frame" in (await link.until(m.Goodbye)).reason


async def test_reports_of_others_and_settled_attempts_change_nothing(address: str, ada: Access) -> None:
    """Two nodes with an app of their own: what one of them is given, the other reports; then the one does, twice."""
    operator = Access.of(CLUSTER)
    mine = m.NodeInfo(1, {}, {}, {"forged": ""}, "127.0.0.1:1")
    async with RawLinks(address) as raw:
        nodes = []
        for name in ("good", "evil"):
            first = hello("node", name=name)
            first.node = mine
            nodes.append(await raw.dial(first, operator))
        client = await raw.dial(hello("client", "ada"), ada)
        submission = job_message("forged")
        submission.stages[0] = m.Stage("forged", 1, b"", "", 2.0, 0, None)
        client.send(submission)
        client.send(m.AddTasks("forged", 0, [b"task"]))
        good, evil = nodes
        await client.until(m.JobAccepted)
        reserve = await good.until(m.Reserve)
        good.send(m.GetTasks(1, reserve.ticket, 1))
        launch = await good.until(m.Launch)

        def report(result: bytes, attempt: int = launch.attempt) -> m.Report:
            return m.Report("forged", 0, attempt, TaskStatus.FINISHED, result, "", None, None)

        before = stale_reports(address)
        evil.send(report(b"another node's"))
        evil.send(report(b"nobody's", launch.attempt + 1))
        evil.send(report(b"an earlier epoch's", -1))
        evil.send(m.HandBack("forged", launch.attempt, "not mine to hand back"))
        evil.send(m.AttemptRuns("forged", launch.attempt))
        await asyncio.to_thread(wait_for_stale, address, before + 4)
        good.send(report(b"the true one"))
        good.send(report(b"replayed"))
        outcome = await client.until(m.Outcome)
        assert (outcome.result, outcome.attempts, outcome.node) == (b"the true one", 1, "good")
        await asyncio.to_thread(wait_for_stale, address, before + 5)
        assert [type(each) for each in client.came if type(each) in (m.Outcome, m.NotCancelled)] == [m.Outcome]


def stale_reports(address: str) -> int:
    text = ask(Access.of(CLUSTER), address, "GET", "/metrics")[1]["text"]
    (value,) = re.findall(r"^sparrow_scheduler_stale_reports_total (\S+)$", text, re.M)
    return int(float(value))


def wait_for_stale(address: str, count: int) -> None:
    wait_until(lambda: stale_reports(address) >= count, f"{count} stale reports")
    assert stale_reports(address) == count


# ---- large data ------------------------------------------------------------------------------


def test_a_clients_job_does_not_have_the_cluster_show_its_secret(address: str, guarded: LocalCluster) -> None:
    """A payload that is said to lie at a server of the attacker's: the node that asks it shows a key to that blob."""
    shown: list[str] = []
    data = b"x" * 100
    hash_ = hashlib.sha256(data).hexdigest()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers["Authorization"])
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            there = BlobRef(hash_, len(data), (f"127.0.0.1:{server.server_port}",))
            with Client(address, token=ADA) as client:
                job = client.submit_job(JobSpec([there], app="command"))
                with pytest.raises(TaskLost):
                    job.results()
        finally:
            server.shutdown()
    assert shown
    assert {header.partition(" ")[2][:5] for header in shown} == {BLOB_KEY}
    key = shown[0].partition(" ")[2]
    node = guarded.node_processes[0].address
    assert ask(Access(key), node, "GET", f"/v1/blobs/{hash_}")[0] == 404  # It opens that blob, if it is there,
    for daemon, method, path in (
        (node, "GET", "/v1/blobs/" + "a" * 64), (node, "HEAD", f"/v1/blobs/{hash_}"), (node, "GET", "/v1/nodes"),
        (node, "PUT", f"/v1/blobs/{hash_}"), (address, "GET", "/v1/jobs"), (address, "GET", "/metrics"),
    ):  # fmt: skip
        assert ask(Access(key), daemon, method, path)[0] == 401  # and nothing else.


def test_clients_give_and_fetch_large_data(address: str) -> None:
    data = tasks.pattern(2_000_000)
    with Client(address, token=BOB) as client:
        assert client.submit(tasks.digest, data).result(TIMEOUT_S) == hashlib.sha256(data).hexdigest()
        assert client.submit(tasks.pattern, len(data)).result(TIMEOUT_S) == data


# ---- nothing is shown ------------------------------------------------------------------------


def test_no_secret_is_in_a_log_or_with_a_task(guarded: LocalCluster, address: str, ada: Access) -> None:
    environment = {"app": "command", "tasks": [{"payload": {"argv": ["env"]}}]}
    job_id = ask(ada, address, "POST", "/v1/jobs", environment)[1]["id"]
    seen = str(ask(ada, address, "GET", f"/v1/jobs/{job_id}/results"))
    assert guarded._log_dir is not None
    seen += "".join(log.read_text() for log in guarded._log_dir.glob("*.log"))
    assert "role client, user 'ada'" in seen or "listens" in seen
    for secret in (CLUSTER, ADA, BOB):
        assert secret not in seen
