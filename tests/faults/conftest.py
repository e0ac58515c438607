"""The cluster of the fault matrix, and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.faults.play import Observation
from tests.faults.shared import Shared


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The cluster for all rows."""
    shared = Shared(lambda: tmp_path_factory.mktemp("faults"))
    yield shared
    shared.discard()


@pytest.fixture(scope="package")
def report(pytestconfig: pytest.Config) -> Callable[[Observation], None]:
    """Adds a row to the file that `--faults-report` names, if it does."""
    path = pytestconfig.getoption("--faults-report")

    def add(observation: Observation) -> None:
        if path:
            with Path(path).open("ab") as file:
                file.write(msgspec.json.encode(observation) + b"\n")

    return add
