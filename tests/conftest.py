"""A cluster of real processes that all tests share which neither kill nor drain anything."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from sparrow_py import Client, LocalCluster

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in the background has them ignore SIGINT; what they start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of tests/faults and tests/fuzz, which have to be known here."""
    parser.addoption(
        "--faults",
        choices=("pairwise", "all"),
        default="pairwise",
        help="rows of the fault matrix: those that have every pair, or all",
    )
    parser.addoption("--faults-report", metavar="FILE", help="add a line of JSON for each row of the fault matrix")
    parser.addoption("--fuzz-seconds", type=float, default=0.0, help="how long to fuzz in all; 0: one short round each")
    parser.addoption("--fuzz-seed", type=int, default=None, help="the seed of the first round, as a failure names it")


class ByFile(LoadScopeScheduling):
    """With several processes the tests of a file go to one of them, since they share what its fixtures have made; and
    so do those of sql, whose data take long to make. (`--dist loadgroup` cannot tell that to pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        parts = nodeid.partition("::")[0].split("/")
        return "/".join(parts[:3] if "sql" in parts else parts)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """pytest-xdist asks who distributes the tests."""
    return ByFile(config, log)


SLOTS = 4
"""Of the shared cluster, over all its node monitors."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One scheduler, two node monitors of two slots. Leave it as it is."""
    with LocalCluster(node_monitors=2, slots=SLOTS // 2, log_dir=tmp_path_factory.mktemp("logs")) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the shared cluster."""
    with Client(cluster) as client:
        yield client


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that is not there: `tasks.hold` waits for it. It is there when the test ends."""
    path = tmp_path / "gate"
    yield path
    path.touch()
