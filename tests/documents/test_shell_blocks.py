"""The shell blocks of the documents run as they stand, in one cluster of their own: each document's in one shell, in a
directory with the few files that it speaks of. `blocks_not_run.py` lists those that do not run, with the reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrow_py import LocalCluster
from tests.documents.blocks_not_run import SHELL_NOT_RUN, why_not
from tests.support.documents import DOCUMENTS, ROOT, blocks


def run_of(document: Path) -> list[str]:
    """The blocks of this document that run."""
    path = str(document.relative_to(ROOT))
    found = [*blocks(document, "sh"), *blocks(document, "console")]
    return [block for block in found if why_not(SHELL_NOT_RUN, path, block) is None]


RUN = {str(document.relative_to(ROOT)): found for document in DOCUMENTS if (found := run_of(document))}
"""Of each document its blocks that run."""

PRINTED = {
    "README.md": ["10: 2 5", "task 3", "node-0"],
    "SECURITY.md": [],
    "docs/from-gnu-parallel.md": ["A one", "B two", "echo 2 b", "b.txt"],
    "docs/http.md": ['"hello\\n"', '"long-1"', "ready"],
    "docs/operations.md": ["1 task failed", "Linux"],
    "docs/run.md": ["trained 0.01 3", "simulated 99"],
    "docs/tutorial.md": ["4: 2 2", "task 2 of three"],
}
"""Of each document words of what its blocks print."""

FILES = {
    "a.png": "", "b.png": "", "a.log": "", "a.txt": "two\none\ntwo\n", "b.txt": "one\n", "list.txt": "one\ntwo\n",
    "old.txt": "old\n", "new.txt": "new\n", "old": "",
}  # fmt: skip
PROGRAMS = {"convert": 'cp "$1" "$2"', "train": 'echo trained "$2" "$4"', "simulate": 'echo simulated "$2"'}
"""Programs of the reader's that the documents call."""

OF_OTHERS = re.compile(r"^(.*\| )?parallel .*\n", re.M)
"""Programs of GNU parallel stand beside ours."""
CLUSTER_STARTS = re.compile(r"^(sparrow-(scheduler|node-monitor) .*&|sparrow-scheduler &|sleep 3 .*)\n", re.M)
OURS = re.compile(r"(seq \d+ \| )?sparrow ")
ran: set[str] = set()
"""Lines that have run; of those that are a command of ours none runs twice."""


@pytest.fixture(scope="module")
def cluster_of_commands() -> Iterator[LocalCluster]:
    """One scheduler and one node monitor, which runs commands."""
    with LocalCluster(processes="separate", slots=4, enable_command=True) as cluster:
        yield cluster


def directory_for(path: Path) -> dict[str, str]:
    """Put what documents speak of into this directory; returns the environment of a shell there."""
    for name, text in FILES.items():
        (path / name).write_text(text)
    for name, text in PROGRAMS.items():
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)
    programs = f"{path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": programs, "COLUMNS": "200"}


def script(found: list[str], cluster: LocalCluster) -> str:
    """The blocks as one program, for this cluster in place of the one that they start, or take as started."""
    text = CLUSTER_STARTS.sub("", OF_OTHERS.sub("", "".join(found)))
    text = text.replace("127.0.0.1:20503,127.0.0.1:20513", "127.0.0.1:20503")
    text = text.replace("127.0.0.1:20503", cluster.addresses[0])
    text = text.replace("127.0.0.1:20504", cluster.node_processes[0].address)
    text = text.replace("-- convert ", "-- ./convert ")  # A node looks for programs in its own PATH.
    text = re.sub(r"^(.*; echo \"\$\?.*)$", r"set +e; \1; set -e", text, flags=re.M)
    lines = [line for line in text.splitlines(keepends=True) if not (OURS.match(line) and line in ran)]
    ran.update(lines)
    return "".join(lines)


@pytest.mark.rest
@pytest.mark.parametrize("path", RUN)
def test_blocks_run(path: str, cluster_of_commands: LocalCluster, tmp_path: Path) -> None:
    environment = directory_for(tmp_path)
    environment["SPARROW_SCHEDULER"] = cluster_of_commands.addresses[0]
    program = script(RUN[path], cluster_of_commands)
    shell = ["bash", "-eu", "-o", "pipefail", "-c", program]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    for words in PRINTED[path]:
        assert words in done.stdout, done.stdout


def test_what_is_listed_is_there() -> None:
    """Every reason is one for a block, and names tests that there are."""
    for path, listed in SHELL_NOT_RUN.items():
        found = [*blocks(ROOT / path, "sh"), *blocks(ROOT / path, "console")]
        for words, why in listed.items():
            assert any(words in block for block in found), f"{path} has no block with {words!r}"
            assert all((ROOT / named).is_file() for named in re.findall(r"tests/\S+\.py", why)), f"{path}: {why}"


def test_no_block_is_called_by_a_name_that_nobody_looks_for() -> None:
    """Shell is `sh`, or `console` with prompts."""
    known = {"python", "sh", "console", "text", "json", "toml", "yaml", "sql"}
    for path in DOCUMENTS:
        assert set(re.findall(r"^```(\w+)$", path.read_text("utf-8"), re.M)) <= known, path.name
