"""Claims and binding, as stories: `testdata/*.txt`, commands and what a scheduler's core answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import transcripts
from tests.support.scheduler_transcripts import SchedulerPlayer

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_core_answers_as_it_is_written(path: Path) -> None:
    transcripts.check(path, SchedulerPlayer())


def test_another_answer_fails() -> None:
    said = "scheduler a=1\nsubmit j\n----\nclient <- JobAccepted job=k\n"
    assert transcripts.played(said, SchedulerPlayer()) != said


def test_what_is_no_command_fails() -> None:
    with pytest.raises(ValueError, match="'a sings loudly' is no command"):
        transcripts.played("scheduler a=1\na sings loudly\n", SchedulerPlayer())
