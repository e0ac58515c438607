"""The directory between jobs: what is done survives, what is not needed goes, and it is bounded."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from frontends.workflow.ir.reading import read
from frontends.workflow.running import store as stores
from frontends.workflow.running.errors import NothingToResume, StoreFull, StoreUnusable
from frontends.workflow.running.store import KeptRelation, RunStore, fingerprint, new_run, resumed_run

DAG = read("t = SCAN 't' (k INTEGER)\na = DISTINCT t\nb = DISTINCT a\nRESULTS b\n")
MARK, MOST = "0123456789abcdef", 1_000


def new(store: Path) -> RunStore:
    return new_run(store, MARK, DAG, MOST)


def keep(run: RunStore, name: str, size: int = 10) -> KeptRelation:
    """A relation of the run, whose file is there."""
    kept = KeptRelation(f"{name}.parquet", 1, size, {"k": 8})
    (run.directory / kept.file).write_bytes(b"x" * size)
    return kept


def test_an_interrupted_run_is_resumed_with_what_was_done(tmp_path: Path) -> None:
    run = new(tmp_path)
    kept = keep(run, "a")
    run.add(frozenset({"a"}), {"a": kept}, frozenset({"a"}))
    run.close(delete=False)
    again = resumed_run(tmp_path, MARK, MOST)
    assert (again.manifest.done, again.manifest.relations) == (["a"], {"a": kept})
    assert read(again.manifest.dag) == DAG
    assert again.path("a").is_file()
    assert again.token == run.token
    again.close(delete=True)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_another_process_drives_is_not_resumed(tmp_path: Path) -> None:
    run = new(tmp_path)
    run.add(frozenset({"a"}), {"a": keep(run, "a")}, frozenset({"a"}))
    with pytest.raises(NothingToResume, match="run it without resume"):
        resumed_run(tmp_path, MARK, MOST)
    run.close(delete=True)


@pytest.mark.parametrize("damage", ["file", "half a file", "manifest", "garbage", "other", "nothing"])
def test_a_run_that_is_not_whole_or_another_one_is_not_resumed(tmp_path: Path, damage: str) -> None:
    run = new(tmp_path)
    if damage != "nothing":
        run.add(frozenset({"a"}), {"a": keep(run, "a")}, frozenset({"a"}))
    run.close(delete=False)
    if damage == "file":
        (run.directory / "a.parquet").unlink()
    elif damage == "half a file":
        os.truncate(run.directory / "a.parquet", 5)
    elif damage == "manifest":
        (run.directory / stores.MANIFEST).unlink()
    elif damage == "garbage":
        (run.directory / stores.MANIFEST).write_text('{"done": 7}')
    with pytest.raises(NothingToResume):
        resumed_run(tmp_path, "f" * 16 if damage == "other" else MARK, MOST)


def test_relations_that_nothing_needs_are_deleted(tmp_path: Path) -> None:
    run = new(tmp_path)
    run.add(frozenset({"a"}), {"a": keep(run, "a")}, frozenset({"a"}))
    run.add(frozenset({"b"}), {"b": keep(run, "b")}, frozenset({"b"}))
    assert sorted(one.name for one in run.directory.glob("*.parquet")) == ["b.parquet"]
    assert run.manifest.done == ["a", "b"]
    run.close(delete=True)


def test_more_bytes_than_allowed_are_an_error_that_names_the_limit(tmp_path: Path) -> None:
    run = new(tmp_path)
    with pytest.raises(StoreFull, match=r"1,001 bytes; at most 1,000 .* SPARROW_WORKFLOW_STORE_BYTES_MAX"):
        run.add(frozenset({"a"}), {"a": keep(run, "a", 1_001)}, frozenset({"a"}))
    run.close(delete=True)


def test_only_the_newest_interrupted_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "RUNS_KEPT_MAX", 2)
    running = new(tmp_path)
    for _ in range(4):
        new(tmp_path).close(delete=False)
    new(tmp_path).close(delete=True)
    assert len(list(tmp_path.iterdir())) == 3
    assert running.directory.is_dir()
    running.close(delete=True)


def test_what_is_no_run_of_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "RUNS_KEPT_MAX", 0)
    (tmp_path / "data").mkdir()
    (tmp_path / "notes").write_text("x")
    new(tmp_path).close(delete=False)
    new(tmp_path).close(delete=True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["data", "notes"]


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnusable, match=f"store {tmp_path}/file"):
        new(tmp_path / "file")


@pytest.mark.parametrize("text", ["", "0", "-1", "1e9", "many"])
def test_the_limit_in_the_environment_must_be_a_number(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stores.STORE_BYTES_MAX_VARIABLE, text)
    with pytest.raises(StoreUnusable, match="a whole number from 1"):
        stores.bytes_max()


def test_the_fingerprint_changes_with_the_workflow_and_its_tables() -> None:
    other = read("t = SCAN 't' (k INTEGER)\na = DISTINCT t\nRESULTS a\n")
    found = {fingerprint(DAG, {"t": "1"}), fingerprint(DAG, {"t": "2"}), fingerprint(other, {"t": "1"})}
    assert len(found) == 3
    assert fingerprint(DAG, {"t": "1"}) in found


# ---- several accounts, several runs


def test_a_store_that_anybody_may_rename_things_in_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(StoreUnusable, match=r"all may rename what is in it \(drwxrwxrwx\); chmod o-w"):
        new(tmp_path)
    with pytest.raises(StoreUnusable, match="all may rename"):
        resumed_run(tmp_path, MARK, MOST)
    tmp_path.chmod(0o1777)
    new(tmp_path).close(delete=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_store_of_another_account_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, -1)
    with pytest.raises(StoreUnusable, match="it belongs to user 65534; name a directory of your own"):
        new(tmp_path)


def another_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this process counts as another account's, whose store root has made."""
    ours = os.geteuid()
    monkeypatch.setattr(stores.os, "geteuid", lambda: ours + 1)
    monkeypatch.setattr(stores, "_check_safe", lambda _: None)


def test_runs_of_other_accounts_are_neither_resumed_nor_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new(tmp_path)
    run.add(frozenset({"a"}), {"a": keep(run, "a")}, frozenset({"a"}))
    run.close(delete=False)
    another_accounts(monkeypatch)
    monkeypatch.setattr(stores, "RUNS_KEPT_MAX", 0)
    new(tmp_path).close(delete=True)
    assert run.directory.is_dir()
    with pytest.raises(NothingToResume):
        resumed_run(tmp_path, MARK, MOST)


def test_a_link_in_the_store_is_no_run(tmp_path: Path) -> None:
    run = new(tmp_path / "elsewhere")
    run.add(frozenset({"a"}), {"a": keep(run, "a")}, frozenset({"a"}))
    run.close(delete=False)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / run.directory.name).symlink_to(run.directory)
    with pytest.raises(NothingToResume):
        resumed_run(tmp_path / "store", MARK, MOST)


def test_a_run_that_ends_while_another_one_begins_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        new(tmp_path).close(delete=False)
    lstat = Path.lstat

    def deleted_then(path: Path) -> Any:
        status = lstat(path)
        shutil.rmtree(path)
        return status

    monkeypatch.setattr(Path, "lstat", deleted_then)
    new(tmp_path).close(delete=True)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_with_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stores.os, "fsync", full)
    with pytest.raises(StoreUnusable, match=r"it cannot be used: .* No space left on device"):
        run.add(frozenset({"a"}), {"a": keep(run, "a")}, frozenset({"a"}))
    run.close(delete=True)
