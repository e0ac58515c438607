"""The Python blocks of the documents run as they stand, and print what the comments beside say. `blocks_not_run.py`
lists those that a test of their own runs, and those that do not run, with the reason."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest

import sparrow_py.cluster
from sparrow_py import LocalCluster
from sparrow_py.kept_clients import close_clients
from tests.documents.blocks_not_run import PYTHON_ELSEWHERE, PYTHON_NOT_RUN, why_not
from tests.support.documents import DOCUMENTS, ROOT, blocks

OF_OTHER_LIBRARIES = (
    "docs/numpy-sklearn-dask-jupyter.md",
    "docs/from-multiprocessing.md",
    "docs/from-joblib.md",
    "docs/from-dask.md",
    "docs/from-ray.md",
    "docs/from-celery.md",
)
"""Documents whose blocks have workers import much, or need what is not installed everywhere. Programs of other
libraries alone, which stand beside ours there, do not run."""
CHEAP = ("README.md", "docs/index.md", "docs/python.md", "docs/tutorial.md")
"""Documents whose blocks take some hundredths of a second, but for those that kill a node of a cluster of their own."""


def runs(path: str, block: str) -> bool:
    """Whether this block runs here: each does that is not listed as run elsewhere, or not at all."""
    if why_not(PYTHON_ELSEWHERE, path, block) or why_not(PYTHON_NOT_RUN, path, block):
        return False
    return path not in OF_OTHER_LIBRARIES or "sparrow_py" in block


BLOCKS = [
    pytest.param(
        f"{path}, block {number}",
        block,
        id=f"{path}-{number}",
        marks=[] if path in CHEAP and ".kill()" not in block else [pytest.mark.rest],
    )
    for path in (str(document.relative_to(ROOT)) for document in DOCUMENTS)
    for number, block in enumerate(blocks(ROOT / path, "python"))
    if runs(path, block)
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


def test_what_is_listed_is_there() -> None:
    """Each entry is of a block, and names a test that there is, which reads the document."""
    for listed in (PYTHON_ELSEWHERE, PYTHON_NOT_RUN):
        for path, found in listed.items():
            for words, why in found.items():
                assert any(words in block for block in blocks(ROOT / path, "python")), f"{path}: {words}"
                for test in re.findall(r"tests/\S+\.py", why):
                    text = (ROOT / test).read_text("utf-8")
                    assert listed is PYTHON_NOT_RUN or path.partition("/")[2] in text, f"{path}: {test}"
