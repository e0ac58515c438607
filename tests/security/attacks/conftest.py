"""Real daemons that are attacked, and an honest client that is served all the while."""

import sys
from collections.abc import Iterator

import psutil
import pytest

from sparrow_py import CallOptions, Client
from tests.support import tasks
from tests.support.daemons import Daemon, get_json, node_of
from tests.support.waiting import TIMEOUT_S, wait_until

RSS_GROWTH_BYTES_MAX = 48 << 20
"""By so much may a daemon grow during an attack; attacks send or ask for many times that."""
FILES = 256
"""That the scheduler may have open: so it takes an eighth as many HTTP connections."""
LIMIT_FILES = (
    f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES})); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    log = tmp_path_factory.mktemp("scheduler") / "log"
    with Daemon("scheduler", within=(sys.executable, "-c", LIMIT_FILES), log=log) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def node(scheduler: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with node_of(scheduler.address, tmp_path_factory.mktemp("node") / "log", "--blob-bytes-max", "10000000") as daemon:
        yield daemon


@pytest.fixture(params=["scheduler", "node"])
def daemon(request: pytest.FixtureRequest, scheduler: Daemon, node: Daemon) -> Daemon:
    """Each of the two in turn."""
    chosen: Daemon = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(scope="module")
def bystander(scheduler: Daemon, node: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client whose task runs through all attacks, and is started once: its links stand."""
    gate = tmp_path_factory.mktemp("bystander") / "gate"
    with Client(scheduler.address, user="bystander") as client:
        held = client.submit_calls(tasks.hold, [(gate, "held")], options=CallOptions(max_attempts=1))
        wait_until(lambda: tasks.started(gate, "held"))
        yield client
        gate.touch()
        assert held.results(TIMEOUT_S) == ["held"]


@pytest.fixture(autouse=True)
def unharmed(scheduler: Daemon, node: Daemon, bystander: Client) -> Iterator[None]:
    """Whatever a test does: the daemons live, serve an honest client, do not grow, and had no error of their own."""
    before = [(rss(daemon), daemon.log.stat().st_size) for daemon in (scheduler, node)]
    yield
    assert list(bystander.map(tasks.square, range(10))) == [x * x for x in range(10)]
    assert {node["id"] for node in get_json(scheduler.address, "/v1/nodes")["nodes"]} == {"n"}
    for daemon, (bytes_before, log_before) in zip((scheduler, node), before, strict=True):
        get_json(daemon.address, "/openapi.json")
        assert daemon.process.poll() is None
        assert rss(daemon) < bytes_before + RSS_GROWTH_BYTES_MAX
        said = daemon.log.read_bytes()[log_before:].decode()
        assert "Traceback" not in said, said


def rss(daemon: Daemon) -> int:
    """Its memory, in bytes."""
    return int(psutil.Process(daemon.process.pid).memory_info().rss)
