"""The line that says how a program does."""

from __future__ import annotations

import io

from frontends.dataflow.control_messages import Progress
from frontends.dataflow.progress_line import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tasks_a_second_are_those_of_the_last_seconds() -> None:
    line = ProgressLine(Terminal())
    line.text(Progress("running", 0, 5, 1000, 2, 0, 0), 0.0)
    text = line.text(Progress("running", 0, 9, 3000, 2, 1, 0), 1.0)
    assert text == "dataflow: running · run 0, block 9 · 2,000 tasks/s · 2 workers · 1 moves"
    text = line.text(Progress("rolling back", 0, 9, 3000, 1, 1, 2), 10.0)
    assert text == "dataflow: rolling back · run 0, block 9 · 0 tasks/s · 1 worker · 1 moves · 2 rollbacks"


def test_a_run_that_has_not_begun_says_why() -> None:
    line = ProgressLine(terminal := Terminal())
    line.wait("1 worker is needed")
    line.end()
    assert terminal.getvalue() == "\r\x1b[Kdataflow: waiting: 1 worker is needed\r\x1b[K"


def test_it_is_shown_on_terminals_alone_and_wiped_at_the_end() -> None:
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        line = ProgressLine(stream)
        line.show(Progress("running", 0, 5, 1000, 2, 0, 0))
        line.end()
        assert bool(stream.getvalue()) is shown
        assert stream.getvalue().endswith("\r\x1b[K" if shown else "")
