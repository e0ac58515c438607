"""Snapshots as files: only whole ones are found again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from frontends.dataflow.snapshot_files import SnapshotFiles


def test_a_whole_snapshot_is_found_with_its_values_and_what_signals_said(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    files.keep((0, 7), {(1, 0): np.arange(3), (1, 1): {"any": "object"}})
    files.keep((0, 7), {(2, 0): np.zeros((2, 2), order="F")})
    assert SnapshotFiles(tmp_path).whole() == {}
    files.complete((0, 7), {3: True, 7: False})
    ((key, (signals, places)),) = SnapshotFiles(tmp_path).whole().items()
    assert key == (0, 7) and signals == {3: True, 7: False} and places == {(1, 0), (1, 1), (2, 0)}
    values = dict(files.read(key, [(1, 1), (1, 0), (2, 0)]))
    assert values[1, 1] == {"any": "object"} and values[1, 0].tolist() == [0, 1, 2]
    assert values[2, 0].flags.f_contiguous


def test_a_snapshot_that_is_dropped_leaves_nothing(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    for block in (1, 2):
        files.keep((0, block), {(1, 0): np.arange(3)})
        files.complete((0, block), {})
    files.drop((0, 1))
    files.drop((5, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot-0-2"]
