"""A guarded cluster of real processes, which the tests of roles share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrow_py import LocalCluster
from sparrow_py.access.credentials import Access
from tests.support.guarded import ADA, BOB, CLUSTER, Authority, usual_tokens


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One scheduler and one node monitor with tokens of the cluster, ada and bob. Leave it as it is."""
    directory = tmp_path_factory.mktemp("guarded")
    path = usual_tokens(directory / "tokens")
    with LocalCluster(slots=2, token_file=path, log_dir=directory / "logs", enable_command=True) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def ada() -> Access:
    return Access.of(ADA)


@pytest.fixture
def bob() -> Access:
    return Access.of(BOB)


@pytest.fixture
def operator() -> Access:
    return Access.of(CLUSTER)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "logs"
