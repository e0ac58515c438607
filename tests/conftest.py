"""A cluster of real processes that all tests share which neither kill nor drain anything."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrow_py import Client, LocalCluster

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in the background has them ignore SIGINT; what they start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

for name in [name for name in os.environ if name.startswith("SPARROW_")]:
    del os.environ[name]  # What the tester's own environment says of clusters is none of the tests' business.


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes (pytest-xdist, `--dist loadgroup`) the tests of a file stay together, since they share
    what its fixtures have made; and those of sql, whose data take long to make."""
    for item in items:
        parts = item.path.relative_to(config.rootpath).parts
        item.add_marker(pytest.mark.xdist_group("/".join(parts[:3] if "sql" in parts else parts)))


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
