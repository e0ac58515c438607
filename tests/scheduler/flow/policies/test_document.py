"""The policy that docs/flow.md shows runs as it stands, and prints what the comments beside say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.documents import ROOT, blocks


def test_the_policy_of_the_document_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(ROOT / "docs" / "flow.md", "python")
    program: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block, "docs/flow.md", "exec", dont_inherit=True), program)
    said = re.findall(r"^print\(.*\)  # (.*)$", block, re.M)
    assert capsys.readouterr().out.splitlines() == said
    assert len(said) == 2
