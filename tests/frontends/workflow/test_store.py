"""The directory between jobs: what is done survives, what is not needed goes, and it is bounded."""

from pathlib import Path

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
    (run.directory / kept.file).write_bytes(b"x")
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


@pytest.mark.parametrize("damage", ["file", "manifest", "garbage", "other", "nothing"])
def test_a_run_that_is_not_whole_or_another_one_is_not_resumed(tmp_path: Path, damage: str) -> None:
    run = new(tmp_path)
    if damage != "nothing":
        run.add(frozenset({"a"}), {"a": keep(run, "a")}, frozenset({"a"}))
    run.close(delete=False)
    if damage == "file":
        (run.directory / "a.parquet").unlink()
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
