"""What tests of daemons use."""

from collections.abc import Iterator

import pytest

from tests.support.daemons import Daemon


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Shared by all tests of a file that neither end it nor have nodes of their own."""
    with Daemon("scheduler", log=tmp_path_factory.mktemp("scheduler") / "log") as daemon:
        yield daemon
