"""Text of others on its way to a log or a terminal: it begins no line of its own, and moves no cursor."""

from __future__ import annotations

import logging
from typing import Any


def printable(text: str) -> str:
    """The text, with the escape of each character that is not printable: newlines, escape sequences, marks of writing
    direction."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class LogFormatter(logging.Formatter):
    """A line for each record, whatever its message repeats of others' text; lines of a traceback are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join("  " + printable(line) for line in super().formatException(ei).splitlines())
