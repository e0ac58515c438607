"""Real daemons, real faults: what is hit × what happens × when. See docs/reliability.md.

By default the rows run that have every pair, with `--faults=all` every row. A row alone: `--faults=all -k ROW`.
One row of each fault is for `make test`, all others are for `make test-rest`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.matrix import Fault, Row, all_rows, pairwise
from tests.faults.play import Observation, play
from tests.faults.shared import Shared


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        rows = all_rows()
        if metafunc.config.getoption("--faults") != "all":
            rows = pairwise(rows)
        chosen = one_of_each_fault(rows)
        marked = [pytest.param(row, id=row.id, marks=[] if row in chosen else [pytest.mark.rest]) for row in rows]
        metafunc.parametrize("row", marked)


def one_of_each_fault(rows: list[Row]) -> list[Row]:
    """The rows of `make test`: each fault, at different moments and to different targets."""
    by_fault = [[row for row in rows if row.fault is fault] for fault in Fault]
    return [of_fault[number % len(of_fault)] for number, of_fault in enumerate(by_fault)]


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
