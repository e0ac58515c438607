"""docs/simulator-example.md does what it says: its blocks run one after the other and print what stands below them.

After a change of what the simulator decides, `python -m tests.simulator.test_example` writes what is printed now into
the document, and the plot beside it. Then read the document's answer again: does it still hold?
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "simulator-example.md"
TRACE = Path("docs/examples/mixed.trace")
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
"""A block of code, and what it prints if something stands below it."""


def ran(text: str) -> list[tuple[str, str | None]]:
    """Of each block: what it printed, and what the document says of that."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for code, expected in BLOCK.findall(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(DOCUMENT), "exec"), names)
        found.append((printed.getvalue(), expected))
    return found


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with the trace, where the document's plot is not overwritten."""
    (tmp_path / TRACE).parent.mkdir(parents=True)
    shutil.copy(ROOT / TRACE, tmp_path / TRACE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.rest
@pytest.mark.timeout(600)  # It simulates for half a minute, beside other tests and other programs.
def test_its_blocks_print_what_it_says(directory: Path) -> None:
    blocks = ran(DOCUMENT.read_text("utf-8"))
    assert len(blocks) > 5
    for printed, expected in blocks:
        assert printed == expected
    assert (directory / "docs/examples/probe-ratio.png").stat().st_size > 10_000


def test_its_trace_is_what_the_script_makes() -> None:
    script = ROOT / "docs" / "examples" / "make_mixed_trace.py"
    made = subprocess.run([sys.executable, str(script)], capture_output=True, check=True).stdout
    assert made == (ROOT / TRACE).read_bytes()


def rewrite() -> None:
    """Put what is printed now into the document."""
    os.chdir(ROOT)
    text = DOCUMENT.read_text("utf-8")
    printed = iter([output for output, _ in ran(text)])

    def block(match: re.Match[str]) -> str:
        output = next(printed)
        shown = f"\n```text\n{output}```\n" if output else ""
        return f"```python\n{match[1]}```\n{shown}"

    DOCUMENT.write_text(BLOCK.sub(block, text), "utf-8")


if __name__ == "__main__":
    rewrite()
