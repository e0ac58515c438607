"""Local modules and packages that travel with calls to workers which do not have them: their files, packed."""

from __future__ import annotations

import keyword
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from sparrow_py.errors import InvalidRequest, shown
from sparrow_py.own_packages import PACKAGES

MODULES_MAX = 32
"""Modules and packages that a call may be given."""
MODULES_BYTES_MAX = 8 << 20
"""Of all their files together."""
MODULE_FILES_MAX = 2000
"""Of one of them."""
_INIT = "__init__.py"
_COMPILED = (".pyc", ".pyo")


class PackedModule(msgspec.Struct, array_like=True, frozen=True):
    """A module or package with its files, by their paths below the directory that has it ("pkg/__init__.py"). `hash`:
    the SHA-256 of all that, in hexadecimal."""

    name: str
    hash: str
    files: dict[str, bytes]
    replaces_installed: bool = False

    def __repr__(self) -> str:
        return f"<PackedModule {self.name}, {self.size} bytes>"

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(map(len, self.files.values()))


@dataclass(frozen=True)
class LocalModule:
    """A module or package of this machine that calls are given (`CallOptions.modules`).

    Parameters
    ----------
    source: a module that is imported here, or the path of a `.py` file or of a directory with an `__init__.py`.
    replaces_installed: whether it may take the place of an installed module of its name.
    """

    source: ModuleType | str | os.PathLike[str]
    replaces_installed: bool = False

    def packed(self, field: str = "source") -> PackedModule:
        """It as its files are now; `InvalidRequest` with this field for what cannot travel."""
        name, path = _named(field, self.source)
        if name in PACKAGES:
            raise InvalidRequest(field, name, "a module that is not part of sparrow-py")
        if not self.replaces_installed and (place := installed_at(name)):
            allowed = (
                f"a module whose name none has that is installed ({place}): workers that have it need no other; "
                "LocalModule(…, replaces_installed=True) takes its place"
            )
            raise InvalidRequest(field, name, allowed)
        found = [(f"{name}.py", path)] if path.is_file() else _files(field, path)
        files: dict[str, bytes] = {}
        size = 0
        for below, one in found:
            files[below] = _read(field, one)
            size += len(files[below])
            if size > MODULES_BYTES_MAX:
                raise InvalidRequest(field, f"{path} of more bytes", f"at most {MODULES_BYTES_MAX} in all")
        return PackedModule(name, _hash(files), files, self.replaces_installed)


def packed_modules(field: str, modules: object) -> tuple[PackedModule, ...]:
    """Modules, paths and `LocalModule`s, packed; `InvalidRequest` for what cannot be."""
    if not isinstance(modules, list | tuple):
        raise InvalidRequest(field, modules, "a list of modules, paths and LocalModules")
    if len(modules) > MODULES_MAX:
        raise InvalidRequest(field, f"{len(modules)} modules", f"at most {MODULES_MAX}")
    packed: dict[str, PackedModule] = {}
    for index, one in enumerate(modules):
        where = f"{field}[{index}]"
        module = one if isinstance(one, PackedModule) else _local(one).packed(where)
        if module.name in packed:
            raise InvalidRequest(where, module.name, "a module whose name no other of them has")
        packed[module.name] = module
        if (size := sum(other.size for other in packed.values())) > MODULES_BYTES_MAX:
            raise InvalidRequest(where, f"{size} bytes with those before it", f"at most {MODULES_BYTES_MAX} in all")
    return tuple(packed.values())


def _local(one: Any) -> LocalModule:
    return one if isinstance(one, LocalModule) else LocalModule(one)


def installed_at(name: str) -> str:
    """Where this interpreter has an installed module of that name; empty if it has none. What lies elsewhere, in the
    directory of a program, say, is not installed."""
    if name in sys.stdlib_module_names or name in sys.builtin_module_names:
        return "in the standard library"
    spec = PathFinder.find_spec(name, _site_directories())
    return (spec.origin or "") if spec is not None else ""


@cache
def _site_directories() -> Sequence[str]:
    import site  # These two take milliseconds, which every worker would spend.
    import sysconfig

    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        places.append(site.getusersitepackages())
    return list(dict.fromkeys(places))


def _named(field: str, source: object) -> tuple[str, Path]:
    """The name of the module, and its file or its package's directory."""
    if isinstance(source, ModuleType):
        return _imported(field, source)
    if not isinstance(source, str | os.PathLike):
        raise InvalidRequest(field, source, "a module, or the path of one")
    path = Path(source).absolute()
    is_file = path.is_file() and path.suffix == ".py"
    if not is_file and not (path / _INIT).is_file():
        raise InvalidRequest(field, str(source), f"a .py file, or a directory with an {_INIT}")
    name = path.stem if is_file else path.name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidRequest(field, str(source), "a file or directory whose name can be imported")
    return name, path


def _imported(field: str, module: ModuleType) -> tuple[str, Path]:
    name, file = module.__name__, getattr(module, "__file__", None)
    if name == "__main__":
        raise InvalidRequest(field, name, "an imported module; functions of the main script travel by themselves")
    if "." in name:
        raise InvalidRequest(field, name, f"a whole package, as {name.partition('.')[0]}")
    if file is None or not file.endswith(".py"):
        if not (place := installed_at(name)):
            place = file or "no file"
        raise InvalidRequest(field, name, f"a module with a .py file; this one has {place}")
    path = Path(file).absolute()
    return name, path.parent if path.name == _INIT else path


def _files(field: str, directory: Path) -> Iterator[tuple[str, Path]]:
    """The files of a package by their paths below the directory that has it, but for what begins with a dot, and
    bytecode."""
    count = 0
    for place, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            if name.startswith(".") or name.endswith(_COMPILED):
                continue
            path = Path(place, name)
            if name.endswith(tuple(EXTENSION_SUFFIXES)):
                raise InvalidRequest(field, str(path), "Python source and data; compiled modules are to be installed")
            count += 1
            if count > MODULE_FILES_MAX:
                raise InvalidRequest(field, str(directory), f"a package of at most {MODULE_FILES_MAX} files")
            yield path.relative_to(directory.parent).as_posix(), path


def _read(field: str, path: Path) -> bytes:
    """What is in the file, which is not read if it is too large alone."""
    try:
        if (size := path.stat().st_size) > MODULES_BYTES_MAX:
            raise InvalidRequest(field, f"{path} of {size} bytes", f"at most {MODULES_BYTES_MAX} in all")
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(field, str(path), f"a file that can be read ({error.strerror or shown(error)})") from None


def _hash(files: dict[str, bytes]) -> str:
    import hashlib  # Workers pack nothing.

    whole = hashlib.sha256()
    for part in _parts(files):
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
    return whole.hexdigest()


def _parts(files: dict[str, bytes]) -> Iterable[bytes]:
    for name, content in sorted(files.items()):
        yield name.encode("utf-8", "surrogateescape")
        yield content
