"""The Python blocks of the README and of documents on the library run as they stand, and print what the comments beside
say."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest

import sparrow_py.cluster
from sparrow_py import LocalCluster
from sparrow_py.kept_clients import close_clients
from tests.support.documents import ROOT, blocks

PATHS = ("README.md", "docs/python.md")
OF_OTHER_LIBRARIES = (
    "docs/numpy-sklearn-dask-jupyter.md",
    "docs/from-multiprocessing.md",
    "docs/from-joblib.md",
    "docs/from-dask.md",
    "docs/from-ray.md",
    "docs/from-celery.md",
)
"""Documents whose blocks have workers import much, or need what is not installed everywhere."""
BLOCKS = [
    pytest.param(
        f"{path}, block {number}",
        block,
        id=f"{path}-{number}",
        marks=[pytest.mark.rest] if path in OF_OTHER_LIBRARIES else [],
    )
    for path in (*PATHS, *OF_OTHER_LIBRARIES)
    for number, block in enumerate(blocks(ROOT / path, "python"))
    if path in PATHS or "sparrow_py" in block  # Programs of other libraries alone stand beside ours.
]
said = re.compile(r"^\s*print\(.*\)  # (.*)$", re.M).findall


class Borrowed(LocalCluster):
    """The shared cluster, where a client asks for one of its own: to start one for each block takes longer."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.__dict__.update(vars(cluster))

    def stop(self) -> None:
        """It is not ours to stop."""


@pytest.fixture
def embedded(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`Client()` uses the shared cluster."""
    monkeypatch.setattr(sparrow_py.cluster, "LocalCluster", lambda **_: Borrowed(cluster))
    yield
    close_clients()


def imported(block: str) -> set[str]:
    """The packages that a block imports."""
    nodes = list(ast.walk(ast.parse(block)))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {module.partition(".")[0] for module in modules}


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_blocks_run_and_print_what_they_say(name: str, block: str, capsys: pytest.CaptureFixture[str]) -> None:
    for package in imported(block):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    program: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block, name, "exec"), program)
    printed = capsys.readouterr().out.splitlines()
    for line in said(block):
        assert line in printed
        del printed[: printed.index(line) + 1]
