"""Starts our programs where a program of the user's may have modules of our packages' names.

As a script, `python -P …/sparrow_py/start.py [--path=ENTRY]… MODULE ARGUMENT…` does what `python -m MODULE ARGUMENT…`
would, but takes our packages from where this file is: neither the current directory nor `PYTHONPATH` has a say in it.
The entries are looked into for others, after what the interpreter finds by itself.

Its functions are the console scripts.
"""

# ruff: noqa: PTH100, PTH120 - pathlib takes time to import
from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder

PATH_FLAG = "--path="


def command(module: str, *arguments: str, path: Sequence[str] = (), flags: Sequence[str] = ()) -> list[str]:
    """The command line that runs this module of ours with our interpreter, which gets the `flags`."""
    entries = [PATH_FLAG + entry for entry in path]
    return [sys.executable, *flags, "-P", os.path.abspath(__file__), *entries, module, *arguments]


def sparrow() -> None:
    """`sparrow`."""
    _run_main("frontends.cli.__main__")


def scheduler() -> None:
    """`sparrow-scheduler`."""
    _run_main("scheduler.__main__")


def node_monitor() -> None:
    """`sparrow-node-monitor`."""
    _run_main("node_monitor.__main__")


def _run_main(module: str) -> None:
    from sparrow_py.own_packages import take_names

    take_names()
    importlib.import_module(module).main()


def _load_package(home: str) -> None:
    """Have `sparrow_py` from there, whatever the path says."""
    spec = PathFinder.find_spec("sparrow_py", [home])
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules["sparrow_py"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def _script(arguments: list[str]) -> None:
    """Be the module that the arguments name."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    entries = []
    while arguments[0].startswith(PATH_FLAG):
        entries.append(arguments.pop(0).removeprefix(PATH_FLAG))
    # Ours last: tasks find our packages at least there.
    sys.path += [entry for entry in dict.fromkeys([*entries, home]) if entry not in sys.path]
    _load_package(home)
    from sparrow_py.own_packages import take_names

    take_names()
    sys.argv[1:] = arguments[1:]
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _script(sys.argv[1:])
