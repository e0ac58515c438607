"""The Python blocks of the README and of docs/python.md run as they stand, and print what the comments beside say."""

import re
from typing import Any

import pytest

import sparrow_py.cluster
from sparrow_py import LocalCluster
from tests.support.documents import ROOT, blocks

PATHS = ("README.md", "docs/python.md")
BLOCKS = [
    pytest.param(f"{path}, block {number}", block, id=f"{path}-{number}")
    for path in PATHS
    for number, block in enumerate(blocks(ROOT / path, "python"))
]
said = re.compile(r"^\s*print\(.*\)  # (.*)$", re.M).findall


class Borrowed(LocalCluster):
    """The shared cluster, where a client asks for one of its own: to start one for each block takes longer."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.__dict__.update(vars(cluster))

    def stop(self) -> None:
        """It is not ours to stop."""


@pytest.fixture
def embedded(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Client()` uses the shared cluster."""
    monkeypatch.setattr(sparrow_py.cluster, "LocalCluster", lambda **_: Borrowed(cluster))


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_blocks_run_and_print_what_they_say(name: str, block: str, capsys: pytest.CaptureFixture[str]) -> None:
    program: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block, name, "exec"), program)
    printed = capsys.readouterr().out.splitlines()
    for line in said(block):
        assert line in printed
        del printed[: printed.index(line) + 1]
