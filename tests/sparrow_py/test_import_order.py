"""Modules of `sparrow_py` import downwards only, in the order that ARCHITECTURE.md gives, and never in a circle.

Imports for types alone count, and those inside functions.
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import ROOT, section

MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / "sparrow_py").rglob("*.py")}


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that this one imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (
                name if name in MODULES else node.module for name in named if {name, node.module} & set(MODULES)
            )


def place(module: str) -> str:
    """The folder of a module, or itself if it lies beside the folders."""
    return module.split(".")[1]


@pytest.fixture(scope="module")
def all_imports() -> dict[str, set[str]]:
    """By module."""
    return {module: set(imports(path)) for module, path in MODULES.items() if module != "sparrow_py.__init__"}


def order() -> dict[str, int]:
    """The row of each module and folder in the table, from bottom to top."""
    cells = re.findall(r"^\| (`.*?`) \|", section("ARCHITECTURE.md", "The folders of sparrow_py"), re.M)
    return {name: number for number, cell in enumerate(cells) for name in re.findall(r"`(\w+)/?`", cell)}


def test_every_module_has_a_place_in_the_order(all_imports: dict[str, set[str]]) -> None:
    assert {place(module) for module in all_imports} == set(order())


def test_modules_import_downwards(all_imports: dict[str, set[str]]) -> None:
    row = order()
    pairs = [(module, imported) for module, found in all_imports.items() for imported in found]
    assert not [pair for pair in pairs if row[place(pair[1])] > row[place(pair[0])]]


@pytest.mark.parametrize("of", [str, place], ids=["modules", "folders"])
def test_nothing_imports_in_a_circle(all_imports: dict[str, set[str]], of: type[str]) -> None:
    graph: dict[str, set[str]] = {}
    for module, imported in all_imports.items():
        graph.setdefault(of(module), set()).update({of(name) for name in imported} - {of(module)})
    graphlib.TopologicalSorter(graph).prepare()
