"""Stories of attempts and claims at a node, which the core plays as they are written: see `transcripts.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node_monitor import transcripts


@pytest.mark.parametrize("file", transcripts.files(), ids=lambda file: file.stem)
def test_the_core_does_what_the_transcript_says(file: Path) -> None:
    text = file.read_text("utf-8")
    assert transcripts.played(text) == text, "python -m tests.node_monitor.transcripts writes it anew"
