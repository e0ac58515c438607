"""Real daemons, real faults: what is hit × what happens × when. See docs/reliability.md.

By default the rows run that have every pair, with `--faults=all` every row. A row alone: `--faults=all -k ROW`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.matrix import Row, all_rows, pairwise
from tests.faults.play import Observation, play
from tests.faults.shared import Shared


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        rows = all_rows()
        if metafunc.config.getoption("--faults") != "all":
            rows = pairwise(rows)
        metafunc.parametrize("row", rows, ids=[row.id for row in rows])


def test_row(row: Row, shared: Shared, report: Callable[[Observation], None], tmp_path: Path) -> None:
    if row.needs_network and shared.why_no_network:
        pytest.skip(shared.why_no_network)
    if row.needs_disk and shared.why_no_disk:
        pytest.skip(shared.why_no_disk)
    cluster = shared.get()
    try:
        report(play(row, cluster, tmp_path))
    except BaseException:
        shared.discard()
        raise
