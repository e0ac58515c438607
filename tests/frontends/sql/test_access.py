"""The owners of data sets in executors that run the fragments of many users."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frontends.sql import held_datasets as module
from frontends.sql.access import DataAccess
from frontends.sql.dataset import FORMAT, Dataset, Manifest, open_without_links, write_manifest
from frontends.sql.errors import NotYours
from frontends.sql.held_datasets import DATASETS_MAX, DATASETS_OF_USER_MAX, HeldDatasets
from frontends.sql.tasks import Drop, Fragment, Load, Task, encode_task
from frontends.sql.tpch import REPLICATED, STORED
from sparrow_py.errors import InvalidOption, InvalidRequest, SparrowError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from tests.frontends.executor_harness import Monitor

MANIFEST = Manifest(
    FORMAT, "set", "id", 1.0, 2, dict.fromkeys(REPLICATED, 1), {table: [1, 1] for table in STORED}, {}, 1, 1
)


def make(directory: Path, word: str, **fields: object) -> Path:
    """A data set of two partitions, each of whose tables has one row that says `word`."""
    for table in REPLICATED:
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"word": [word]}), directory / f"{table}.parquet")
    for table in STORED:
        for partition in range(2):
            part = directory / table / f"part={partition}"
            part.mkdir(parents=True)
            pq.write_table(pa.table({"word": [word]}), part / "rows.parquet")
    write_manifest(directory, msgspec.structs.replace(MANIFEST, **fields))
    return directory


def word(held: HeldDatasets, user: str, directory: Path, table: str = "orders") -> object:
    """The word that a user reads in a table of partition 1."""
    source = held.tables_for(user, str(directory), 1)
    with source.engine.cursor() as cursor:
        return source.engine.select(cursor, f"SELECT word FROM {table}", source.schemas, {}).to_pylist()[0]["word"]


# ---- the operator's option -------------------------------------------------------------------


def test_the_nearest_named_directory_says_who_may_read(tmp_path: Path) -> None:
    access = DataAccess(
        [f"{tmp_path}", f"ada={tmp_path}/private", f"bob={tmp_path}/private/both", f"ada={tmp_path}/private/both"]
    )
    assert access.readers(tmp_path / "tpch", "eve") is None
    assert access.readers(tmp_path / "private" / "x" / "y", "ada") == {"ada"}
    assert access.readers(tmp_path / "private" / "both", "bob") == {"ada", "bob"}
    for user, path in (
        ("bob", "private"),
        ("eve", "private/both"),
        ("", "private"),
        ("ada", "../elsewhere"),
        ("ada", ".."),
    ):
        with pytest.raises(NotYours, match=f"user {user} may not have the data set in"):
            access.readers((tmp_path / path).resolve(), user)


def test_without_the_option_a_data_set_belongs_to_the_user_who_loaded_it(tmp_path: Path) -> None:
    assert DataAccess(None).readers(tmp_path, "ada") == {"ada"}


def test_if_no_directory_is_named_no_data_set_may_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(NotYours):
        DataAccess([]).readers(tmp_path, "ada")


@pytest.mark.parametrize("text", ["", "data", "=/data", "ada=data", "a/b=data", "ada=", "/da\0ta"])
def test_a_value_that_does_not_name_a_directory_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"sql_data: .* DIR or USER=DIR, where DIR begins with /"):
        DataAccess([text])


# ---- held data sets --------------------------------------------------------------------------


def test_no_other_user_reads_loads_or_drops_a_user_s_data_set(tmp_path: Path) -> None:
    directory = make(tmp_path / "set", "ada's")
    told: list[Mapping[str, list[int]]] = []
    held = HeldDatasets(DataAccess(None), lambda partitions: told.append(dict(partitions)))
    assert held.load("ada", str(directory), [0, 1]) == {"set.id": 2}
    for attempt in (
        lambda: word(held, "bob", directory),
        lambda: held.load("bob", str(directory), [0]),
        lambda: held.tables_for("bob", f"{directory}/../set", None),
        lambda: word(held, "", directory),
    ):
        with pytest.raises(NotYours):
            attempt()
    held.drop("bob", "set.id")
    assert word(held, "ada", directory) == "ada's" and told[-1] == {"set.id": [0, 1]}
    held.drop("ada", "set.id")
    assert told[-1] == {}
    assert word(held, "bob", directory) == "ada's"  # It is nobody's now, and loaded again.


def test_all_users_read_a_public_data_set_and_no_user_drops_it(tmp_path: Path) -> None:
    directory = make(tmp_path / "set", "all")
    held = HeldDatasets(DataAccess([str(tmp_path)]))
    assert [word(held, user, directory) for user in ("ada", "bob")] == ["all", "all"]
    held.drop("ada", "set.id")
    (directory / "manifest.json").unlink()
    assert word(held, "bob", directory) == "all"


def test_a_data_set_with_the_name_and_id_of_another_opens_nothing_of_it(tmp_path: Path) -> None:
    """Anybody may write a manifest: a directory with the name and id of another data set gives no access to that one,
    and the other's owner reads nothing of the false one."""
    true, false = make(tmp_path / "ada", "true"), make(tmp_path / "bob", "false")
    held = HeldDatasets(DataAccess([f"ada={true}", f"bob={false}"]))
    held.load("bob", str(false), [0, 1])
    assert word(held, "ada", true) == "true" and word(held, "bob", false) == "false"
    held.drop("bob", "set.id")
    assert word(held, "ada", true) == "true"


def test_a_link_to_a_data_set_is_resolved_before_its_readers_are_checked(tmp_path: Path) -> None:
    private = make(tmp_path / "private" / "set", "secret")
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "set").symlink_to(private)
    held = HeldDatasets(DataAccess([f"{tmp_path}/public", f"ada={tmp_path}/private"]))
    with pytest.raises(NotYours):
        word(held, "bob", tmp_path / "public" / "set")
    assert word(held, "ada", tmp_path / "public" / "set") == "secret"


@pytest.mark.parametrize(
    "linked", ["manifest.json", "orders.parquet", "orders", "orders/part=1", "orders/part=1/rows.parquet"]
)
def test_links_within_a_data_set_are_not_followed(tmp_path: Path, linked: str) -> None:
    """Otherwise a user who may write to a directory could have the executor read others' files."""
    private, own = make(tmp_path / "private", "secret"), make(tmp_path / "own", "own")
    name = linked if (own / linked).exists() else "customer.parquet"
    (own / name).rename(tmp_path / "away")
    (own / name).symlink_to(private / name)
    held = HeldDatasets(DataAccess([f"bob={own}", f"ada={private}"]))
    with pytest.raises((OSError, InvalidRequest)):
        word(held, "bob", own)
    (own / name).unlink()
    (tmp_path / "away").rename(own / name)
    assert word(held, "bob", own) == "own"  # What could not be loaded is nobody's, and in nobody's way.


def test_only_regular_files_are_opened_and_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    for name in ("pipe", "link", ".", "none"):
        with pytest.raises(OSError):
            open_without_links(tmp_path / name)
    with open_without_links(tmp_path / "file") as file:
        assert file.read() == b"text"


def test_one_user_cannot_use_up_the_room_for_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Engine", lambda: None)
    held = HeldDatasets(DataAccess(None))

    def enter(user: str, number: int) -> None:
        path = tmp_path / user / str(number)
        path.mkdir(parents=True)
        write_manifest(path, MANIFEST)
        held._begin_loading(user, str(path))

    for number in range(DATASETS_OF_USER_MAX):
        enter("ada", number)
    with pytest.raises(SparrowError, match=f"{DATASETS_OF_USER_MAX} data sets of user ada are held here"):
        enter("ada", 99)
    for number in range(DATASETS_MAX - DATASETS_OF_USER_MAX):
        enter(f"user{number}", 0)
    with pytest.raises(SparrowError, match=f"{DATASETS_MAX} data sets are held here"):
        enter("bob", 0)


def test_a_partition_that_is_read_while_its_set_is_dropped_is_read_to_the_end(tmp_path: Path) -> None:
    directory = make(tmp_path / "set", "all")
    held = HeldDatasets(DataAccess(None))
    source = held.tables_for("ada", str(directory), 0)
    held.drop("ada", "set.id")
    with source.engine.cursor() as cursor:
        assert source.engine.select(cursor, "SELECT word FROM orders", source.schemas, {}).num_rows == 1


# ---- the process -----------------------------------------------------------------------------


def test_an_executor_checks_the_user_of_each_run(tmp_path: Path) -> None:
    directory = str(make(tmp_path / "data", "secret"))
    with Monitor("frontends.sql.executor", tmp_path, f"--data=ada={directory}") as monitor:

        def do(number: int, user: str, task: Task) -> x.Done:
            monitor.send(x.Run(number, 0, encode_task(task), [], user))
            while isinstance(message := monitor.receive(object), x.Attributes):
                pass
            assert isinstance(message, x.Done)
            return message

        count = Fragment("SELECT count(*) FROM orders", directory, 0, last=True)
        for number, user in enumerate(("bob", "")):
            for task in (Load(directory, [0]), count):
                done = do(number + 1, user, task)
                assert done.status is TaskStatus.FAILED and "may not have the data set" in done.error
        assert do(3, "ada", Load(directory, [0])).result == b'{"set.id":1}'
        assert do(4, "bob", Drop("set.id")).status is TaskStatus.FINISHED
        (tmp_path / "data" / "manifest.json").unlink()
        assert do(5, "ada", count).status is TaskStatus.FINISHED
        assert "may not have" in do(6, "bob", count).error


def test_the_data_set_of_a_client_may_have_links(tmp_path: Path) -> None:
    """A client reads files as its own user."""
    (tmp_path / "link").symlink_to(make(tmp_path / "set", "own"))
    assert Dataset(tmp_path / "link").key == "set.id"
