"""Snapshots as files: only whole ones are found again."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

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


def test_what_a_controller_left_that_died_as_a_snapshot_became_whole_is_written_anew(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    files.keep((0, 7), {(1, 0): 1})
    (tmp_path / "snapshot-0-7" / ".whole").touch()
    files.keep((0, 7), {(1, 0): 2})
    files.complete((0, 7), {})
    assert SnapshotFiles(tmp_path).whole() == {(0, 7): ({}, {(1, 0)})}
    assert dict(files.read((0, 7), [(1, 0)])) == {(1, 0): 2}


def test_nobody_else_may_enter_a_snapshots_directory(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path / "within" / "dataflow-1")
    files.keep((0, 7), {(1, 0): 1})
    for directory in (tmp_path / "within" / "dataflow-1", tmp_path / "within" / "dataflow-1" / "snapshot-0-7"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to, lambda path, _: os.mkfifo(path)])
def test_values_that_are_no_files_of_this_account_are_not_unpickled(
    plant: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    """Where others may write beside the snapshots, they may put another directory in the place of ours."""
    files = SnapshotFiles(tmp_path)
    files.keep((0, 7), {(1, 0): 1})
    planted = tmp_path / "snapshot-0-7" / "1-0"
    theirs = planted.rename(tmp_path / "theirs")
    plant(planted, theirs)
    with pytest.raises(OSError):
        dict(files.read((0, 7), [(1, 0)]))


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another account take root to make")
def test_values_of_another_account_are_not_unpickled(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    files.keep((0, 7), {(1, 0): 1})
    os.chown(tmp_path / "snapshot-0-7" / "1-0", 65534, 65534)
    with pytest.raises(PermissionError, match="is no file of this account: user 65534"):
        dict(files.read((0, 7), [(1, 0)]))
