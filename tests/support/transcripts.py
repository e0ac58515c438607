"""Transcripts: files that a reader follows like a story, in which each command is followed by what a core answered.

    # A comment tells what happens.
    a says GetTasks ask=1 ticket=1 count=1
    ----
    a <- Launch ask=1 job=j stage=0 task=0 attempt=1 payload=b'p' inputs=() ticket=0

A blank line ends an answer. `check` compares the file with what is answered now, `python -m tests.support.transcripts
FILE…` writes the answers anew. (Raft of etcd is tested so.) Whoever plays a transcript takes commands as text and
returns lines.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

RULE = "----"
Player = Callable[[str], list[str]]
"""Takes a command, returns the lines of the answer."""


def check(path: Path, player: Player) -> None:
    """Fail with both texts if the transcript is not what is answered now."""
    assert played(path.read_text(), player) == path.read_text(), f"see {__name__} for how to write {path} anew"


def played(text: str, player: Player) -> str:
    """The transcript with what is answered now."""
    written = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        told = lines[: lines.index(RULE)] if RULE in lines else lines
        answer: list[str] = []
        for command in told:
            if not command.startswith("#"):
                answer += player(command)
        commands = any(not line.startswith("#") for line in told)
        written.append("\n".join([*told, *([RULE, *(answer or ["nothing"])] if commands else [])]))
    return "\n\n".join(written) + "\n"


# ---- words of commands and answers ---------------------------------------------------------------


def fields_of(words: list[str]) -> dict[str, Any]:
    """name=value, each: a Python literal, or a text."""
    fields = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            fields[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            fields[name] = value
    return fields


def shown(message: msgspec.Struct, without: Collection[str] = ()) -> str:
    """The message's type and its fields, but for those that are empty; a task's number is shown if it is 0, too."""
    said = {name: getattr(message, name) for name in message.__struct_fields__ if name not in without}
    words = [f"{name}={_text(value)}" for name, value in said.items() if value or (name == "task" and value == 0)]
    return " ".join([type(message).__name__, *words])


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}({', '.join(_text(getattr(value, name)) for name in value.__struct_fields__)})"
    if isinstance(value, str):
        return value if " " not in value else repr(value)
    return repr(value).replace(", ", ",").replace(": ", ":")


if __name__ == "__main__":
    from tests.support.scheduler_transcripts import SchedulerPlayer

    for name in sys.argv[1:]:
        Path(name).write_text(played(Path(name).read_text(), SchedulerPlayer()))
