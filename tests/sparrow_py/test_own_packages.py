"""What is in the way of our packages in a user's process."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from sparrow_py.errors import ClusterError
from sparrow_py.own_packages import HOME, LENT, PACKAGES, OwnPackages, give_names_back, require_here, take_names


def in_the_way(*packages: str) -> str:
    """What `require_here` says of them; empty if nothing is in their way."""
    try:
        require_here("the test", packages, "leave it")
    except ClusterError as error:
        return str(error)
    return ""


def test_ours_are_in_nobodys_way() -> None:
    assert in_the_way(*PACKAGES) == ""


def test_a_module_that_would_be_found_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "simulator.py").touch()
    monkeypatch.delitem(sys.modules, "simulator", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert in_the_way("scheduler", "simulator") == (
        "the test needs sparrow-py's package 'simulator', and in this process that name means "
        f"{tmp_path}/simulator.py: rename that, or leave it"
    )


def test_a_directory_without_an_init_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes ours then, wherever that comes in the path."""
    (tmp_path / "loadgen").mkdir()
    monkeypatch.delitem(sys.modules, "loadgen", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert in_the_way("loadgen") == ""


def test_a_module_that_was_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = ModuleType("frontends")
    monkeypatch.setitem(sys.modules, "frontends", theirs)
    assert "means a module that was made without a file ('frontends' in sys.modules)" in in_the_way("frontends")
    theirs.__file__ = str(tmp_path / "frontends.py")
    assert f"means {tmp_path}/frontends.py: rename that" in in_the_way("frontends")


def test_a_process_of_ours_finds_ours_until_it_gives_the_names_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PACKAGES:
        (tmp_path / f"{name}.py").touch()
    monkeypatch.setattr(sys, "modules", {k: v for k, v in sys.modules.items() if k.partition(".")[0] not in LENT})
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(tmp_path)
    take_names()
    take_names()
    assert sys.meta_path.count(OwnPackages) == 1  # type: ignore[comparison-overlap]
    assert [spec.origin for name in PACKAGES if (spec := OwnPackages.find_spec(name))] == [
        f"{HOME}/{name}/__init__.py" for name in PACKAGES
    ]
    assert OwnPackages.find_spec("json") is OwnPackages.find_spec("scheduler.core") is None
    monkeypatch.setitem(sys.modules, "scheduler", ModuleType("scheduler"))
    monkeypatch.setitem(sys.modules, "scheduler.core", ModuleType("scheduler.core"))
    give_names_back()
    assert OwnPackages not in sys.meta_path
    assert not {name for name in sys.modules if name.startswith("scheduler")}
    assert "sparrow_py.own_packages" in sys.modules
