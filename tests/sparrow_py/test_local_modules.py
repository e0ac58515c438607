"""Local modules as they travel: which files, which names, and what cannot."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from sparrow_py import AsyncClient, CallOptions, CallStage, Client, InvalidRequest, LocalCluster, LocalModule
from sparrow_py.call_jobs import calls_job
from sparrow_py.local_modules import (
    MODULE_FILES_MAX,
    MODULES_BYTES_MAX,
    MODULES_MAX,
    PackedModule,
    installed_at,
    packed_modules,
)
from tests.support.waiting import TIMEOUT_S


def module(directory: Path, name: str = "shipped_one", text: str = "VALUE = 1\n") -> Path:
    path = directory / f"{name}.py"
    path.write_text(text)
    return path


def package(directory: Path, name: str = "shipped_package") -> Path:
    root = directory / name
    for folder in ("inner", "__pycache__", ".hidden"):
        (root / folder).mkdir(parents=True)
    for below in ("__init__.py", "inner/__init__.py", "inner/data.txt", "__pycache__/x.pyc", ".hidden/y.py", "old.pyc"):
        (root / below).write_text(f"# {below}")
    return root


def refused(field: str, *modules: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        packed_modules("modules", list(modules))
    assert caught.value.field == field and caught.value.allowed in str(caught.value)
    return str(caught.value)


def test_a_module_is_its_file_and_a_package_its_source_and_data(tmp_path: Path) -> None:
    one, two = packed_modules("modules", (str(module(tmp_path)), LocalModule(package(tmp_path), True)))
    assert (one.name, one.files, one.replaces_installed) == ("shipped_one", {"shipped_one.py": b"VALUE = 1\n"}, False)
    assert two.name == "shipped_package" and two.replaces_installed
    assert sorted(two.files) == [f"shipped_package/{name}" for name in
                                 ("__init__.py", "inner/__init__.py", "inner/data.txt")]  # fmt: skip
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(two), type=PackedModule) == two


def test_an_imported_module_is_found_by_its_file(tmp_path: Path) -> None:
    for path in (module(tmp_path), package(tmp_path)):
        found = ModuleType(path.stem)
        found.__file__ = str(path / "__init__.py" if path.is_dir() else path)
        assert LocalModule(found).packed() == LocalModule(path).packed()


def test_equal_files_have_equal_hashes_and_others_do_not(tmp_path: Path) -> None:
    path = module(tmp_path)
    before = LocalModule(path).packed().hash
    module(tmp_path)
    assert LocalModule(path).packed().hash == before
    module(tmp_path, text="VALUE = 2\n")
    assert LocalModule(path).packed().hash != before
    assert LocalModule(module(tmp_path, "shipped_other")).packed().hash != before


def test_what_is_installed_is_told_from_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module(tmp_path)
    assert not installed_at("shipped_one") and "msgspec" in installed_at("msgspec")
    assert installed_at("json") == installed_at("sys") == "in the standard library"


@pytest.mark.parametrize("name", ["json", "msgspec"])
def test_a_module_with_the_name_of_an_installed_one_is_refused_unless_that_is_asked_for(
    name: str, tmp_path: Path
) -> None:
    path = module(tmp_path, name)
    said = refused("modules[0]", path)
    assert repr(name) in said and "replaces_installed=True" in said
    assert LocalModule(path, replaces_installed=True).packed().name == name


def test_what_cannot_travel_is_named(tmp_path: Path) -> None:
    assert "a module, or the path of one" in refused("modules[0]", 3)
    assert "__init__.py" in refused("modules[0]", tmp_path) and "__init__.py" in refused("modules[0]", "nowhere")
    assert "can be imported" in refused("modules[0]", module(tmp_path, "not-a-name"))
    assert "can be imported" in refused("modules[0]", module(tmp_path, "class"))
    assert "not part of sparrow-py" in refused("modules[0]", module(tmp_path, "scheduler"))
    assert "travel by themselves" in refused("modules[0]", sys.modules["__main__"])
    assert "a whole package, as json" in refused("modules[0]", json.decoder)
    assert "no file" in refused("modules[0]", ModuleType("made_here"))
    assert "whose name no other" in refused("modules[1]", module(tmp_path), module(tmp_path))
    compiled = package(tmp_path)
    (compiled / "fast.so").write_bytes(b"")
    assert "compiled modules are to be installed" in refused("modules[0]", compiled)


def test_limits_are_told(tmp_path: Path) -> None:
    assert f"at most {MODULES_MAX}" in refused("modules", *["module.py"] * (MODULES_MAX + 1))
    half = "#" * (MODULES_BYTES_MAX // 2)
    one, two = module(tmp_path, text=half), module(tmp_path, "shipped_two", half + "#")
    assert f"at most {MODULES_BYTES_MAX}" in refused("modules[1]", one, two)
    assert f"at most {MODULES_BYTES_MAX}" in refused("modules[0]", module(tmp_path, text=2 * half + "#"))
    many = package(tmp_path)
    for number in range(MODULE_FILES_MAX):
        (many / f"m{number}.txt").touch()
    assert f"at most {MODULE_FILES_MAX} files" in refused("modules[0]", many)


@pytest.mark.parametrize("modules", ["module.py", None, 3, {"a": 1}])
def test_options_take_a_list_of_them(modules: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"modules: .* a list of modules, paths and LocalModules"):
        calls_job(CallOptions(modules=modules), abs, [(1,)], "")


def test_options_without_modules_say_what_they_said_before() -> None:
    assert calls_job(CallOptions(), abs, [(1,)], "") == calls_job(CallOptions(modules=[]), abs, [(1,)], "")


# ---- on a cluster ----------------------------------------------------------------------------


def value_of(name: str) -> Any:
    return __import__(name).VALUE


def test_calls_import_what_is_shipped_and_other_calls_do_not(client: Client, tmp_path: Path) -> None:
    path = module(tmp_path)
    assert client.with_options(modules=[path]).submit(value_of, "shipped_one").result(TIMEOUT_S) == 1
    with pytest.raises(ModuleNotFoundError):
        client.submit(value_of, "shipped_one").result(TIMEOUT_S)
    module(tmp_path, text="VALUE = 2\n")
    assert client.with_options(modules=[path]).submit(value_of, "shipped_one").result(TIMEOUT_S) == 2


async def test_an_uploaded_file_goes_with_all_calls_from_then_on(cluster: LocalCluster, tmp_path: Path) -> None:
    async with AsyncClient(cluster) as client:
        client.upload_file(module(tmp_path))
        module(tmp_path, text="VALUE = 2\n")
        assert await client.submit(value_of, "shipped_one") == 1
        client.upload_file(tmp_path / "shipped_one.py")
        assert await client.submit(value_of, "shipped_one") == 2
        with pytest.raises(InvalidRequest, match="path: 'json'"):
            client.upload_file(module(tmp_path, "json"))


def test_the_same_of_a_client_for_threads(cluster: LocalCluster, tmp_path: Path) -> None:
    with Client(cluster) as client:
        client.upload_file(package(tmp_path), replaces_installed=True)
        client.upload_file(module(tmp_path))
        other, packed = client._uploaded
        assert (other.name, packed.name, other.replaces_installed) == ("shipped_package", "shipped_one", True)
        assert list(client.map(value_of, ["shipped_one"])) == [1]


def test_what_was_uploaded_goes_with_calls_of_all_options_and_their_own_modules_go_first(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    others = CallOptions(prefetch=1)
    with Client(cluster) as client:
        view = client.with_options(prefetch=2)
        client.upload_file(module(tmp_path))
        calls = [("shipped_one",)]
        stages = [CallStage("a", value_of, calls), CallStage("b", value_of, calls, options=others)]
        assert view.submit(value_of, "shipped_one").result(TIMEOUT_S) == 1
        assert client.submit_calls(value_of, calls, options=others).results(TIMEOUT_S) == [1]
        assert list(client.map(value_of, ["shipped_one"], options=others)) == [1]
        assert client.submit_stages(stages).results(TIMEOUT_S) == [1, 1]
        with_another = client.with_options(modules=[package(tmp_path)])
        assert with_another.submit(value_of, "shipped_one").result(TIMEOUT_S) == 1
        directory = tmp_path / "newer"
        directory.mkdir()
        newer = module(directory, text="VALUE = 7\n")
        assert client.with_options(modules=[newer]).submit(value_of, "shipped_one").result(TIMEOUT_S) == 7
        assert client.submit(value_of, "shipped_one").result(TIMEOUT_S) == 1
