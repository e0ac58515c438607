"""Log lines that others bring about do not fill the disk."""

from __future__ import annotations

import logging

import pytest

from sparrow_py.logs.sparing_log import INTERVAL_S, LINES_MAX, SparingLog


def test_what_is_too_much_is_counted_and_the_number_said(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    said = SparingLog(logging.getLogger("sparrow.test"), lambda: now[0])
    for number in range(1000):
        said.warning("refused: %s", number)
    assert [record.getMessage() for record in caplog.records] == [f"refused: {number}" for number in range(LINES_MAX)]
    caplog.clear()
    now[0] += INTERVAL_S
    for _ in range(LINES_MAX):
        said.warning("refused: 100 %%")
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == f"refused: 100 %; before that {1000 - LINES_MAX} were left out"
    assert len(messages) == LINES_MAX and not any("left out" in message for message in messages[1:])


def test_tracebacks_are_few_as_well(caplog: pytest.LogCaptureFixture) -> None:
    said = SparingLog(logging.getLogger("sparrow.test"), lambda: 0.0, lines_max=2)
    for number in range(5):
        try:
            raise ValueError(number)
        except ValueError:
            said.exception("request %s", number)
    assert [record.getMessage() for record in caplog.records] == ["request 0", "request 1"]
    assert all(record.exc_info and record.levelno == logging.ERROR for record in caplog.records)
