"""Modules that jobs ship: a worker's tasks import them from memory, each task those of its own job."""

from __future__ import annotations

import pkgutil
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from frontends.python import shipped_modules
from frontends.python.shipped_modules import NONE, ShippedModules
from sparrow_py.local_modules import PackedModule


def packed(name: str = "shipped", hash_: str = "1" * 64, *, replaces: bool = False, **files: str) -> PackedModule:
    """A module of one file, or the package of these files."""
    if not files:
        files = {f"{name}.py": f"HASH = {hash_!r}\nLOADED = []\n"}
    return PackedModule(name, hash_, {below: text.encode() for below, text in files.items()}, replaces)


@pytest.fixture
def shipped() -> Iterator[ShippedModules]:
    modules = ShippedModules()
    yield modules
    modules.use(NONE)
    if modules in sys.meta_path:
        sys.meta_path.remove(modules)  # type: ignore[arg-type]
    assert not [name for name in sys.modules if name.partition(".")[0] in ("shipped", "other")]


def imported(name: str = "shipped") -> Any:
    return __import__(name)


def test_a_task_finds_the_modules_of_its_own_job_and_no_others(shipped: ShippedModules) -> None:
    shipped.use((packed(),))
    assert imported().HASH == "1" * 64
    shipped.use(NONE)
    with pytest.raises(ModuleNotFoundError):
        imported()


def test_the_same_module_of_another_job_is_not_executed_again(shipped: ShippedModules) -> None:
    shipped.use((packed(),))
    first = imported()
    shipped.use((packed(),))
    assert imported() is first
    shipped.use((packed("other", "3" * 64),))
    shipped.use((packed(),))
    assert imported() is first


def test_versions_of_a_module_are_modules_of_their_own(shipped: ShippedModules) -> None:
    shipped.use((packed(),))
    first = imported()
    shipped.use((packed(hash_="2" * 64),))
    assert imported().HASH == "2" * 64
    shipped.use((packed(),))
    assert imported() is first


def test_those_that_were_not_used_for_longest_are_forgotten(
    shipped: ShippedModules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped_modules, "KEPT_MAX", 1)
    found = []
    for number in (1, 2, 3, 2, 1):
        shipped.use((packed(hash_=str(number) * 64),))
        found.append(imported())
    assert found[1] is found[3] and found[0] is not found[4]


def test_packages_have_what_is_below_them_and_their_data(shipped: ShippedModules) -> None:
    files = {
        "shipped/__init__.py": "from shipped.inner.deep import ANSWER\n",
        "shipped/inner/__init__.py": "",
        "shipped/inner/deep.py": "from .. import inner\nANSWER = 42\n",
        "shipped/data.txt": "text",
    }
    shipped.use((packed(**files),))
    assert imported().ANSWER == 42 and sys.modules["shipped.inner.deep"].inner is sys.modules["shipped.inner"]
    assert pkgutil.get_data("shipped", "data.txt") == b"text"
    with pytest.raises(FileNotFoundError, match=r"shipped/none\.txt"):
        pkgutil.get_data("shipped", "none.txt")
    with pytest.raises(ModuleNotFoundError):
        imported("shipped.none")


def test_tracebacks_show_lines_of_shipped_source(shipped: ShippedModules) -> None:
    shipped.use((packed(**{"shipped.py": "def fail():\n    raise ValueError('here')  # this line\n"}),))
    with pytest.raises(ValueError, match="here") as caught:
        imported().fail()
    text = "".join(traceback.format_exception(caught.value))
    assert "# this line" in text and "<shipped 11111111>" in text


def test_the_workers_own_module_of_that_name_is_there_again_afterwards(
    shipped: ShippedModules, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "shipped.py").write_text("HASH = 'own'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    own = imported()
    shipped.use((packed(),))
    assert imported().HASH == "1" * 64
    shipped.use(NONE)
    assert imported() is own and own.HASH == "own"
    del sys.modules["shipped"]


def test_an_installed_module_is_not_shadowed_unless_that_is_asked_for(shipped: ShippedModules) -> None:
    import msgspec

    with pytest.raises(ImportError, match=r"a module 'msgspec', and the worker has one that is installed .*msgspec"):
        shipped.use((packed(), packed("msgspec", "2" * 64)))
    assert shipped.used == NONE and imported("msgspec") is msgspec
    shipped.use((packed("msgspec", "2" * 64, replaces=True),))
    assert imported("msgspec").HASH == "2" * 64
    shipped.use(NONE)
    assert imported("msgspec") is msgspec
