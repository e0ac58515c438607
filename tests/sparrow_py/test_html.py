"""What notebooks show of clusters, clients, jobs and reports (`_repr_html_`), and the table of how far jobs are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrow_py import Client, InvalidRequest, JobReport, LocalCluster, TaskReport
from sparrow_py.futures import progress_table
from sparrow_py.futures.progress_table import NotebookDisplay, Row, progress_rows
from sparrow_py.html_tables import ROWS_MAX, html_block
from sparrow_py.job import TaskStatus
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S

EVIL = "<script>alert('&\"')</script>"
OK = TaskReport(0, TaskStatus.FINISHED, 1, "n1", "", 100.0, 100.1, 100.2, 100.5, 0.3)
LOST = TaskReport(1, TaskStatus.LOST, 3, "", EVIL, 100.0, None, None, None, None)


class Read(HTMLParser):
    """The tags and the text of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


TAGS = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}


@given(st.text(alphabet="<>&;#x0/'\"=! -aé"))
@example(EVIL)
def test_any_text_is_shown_and_nothing_else(text: str) -> None:
    read = Read(html_block(text, [(text, 1.5)], [text], [[text]]))
    assert read.tags <= TAGS
    assert "".join(read.text) == f"{text}{text}1.5{text}{text}"


def test_a_long_table_says_how_much_more_there_is() -> None:
    read = Read(html_block("title", (), ["number"], [[number] for number in range(ROWS_MAX + 1_234)]))
    assert "and 1,234 more" in read.text and str(ROWS_MAX) not in read.text


def test_a_report_has_counts_and_what_did_not_finish() -> None:
    read = Read(JobReport(f"job {EVIL}", [OK, OK, LOST])._repr_html_())
    text = " ".join(read.text)
    assert read.tags <= TAGS and "finished 2" in text and "lost 1" in text and EVIL[:20] in text
    assert "response s 0.5" in text and "service s, median and longest 0.3, 0.3" in text


def test_a_client_its_jobs_and_its_cluster(cluster: LocalCluster, gate: Path) -> None:
    with Client(cluster, user="<b>ann</b>") as client:
        job = client.submit_calls(tasks.hold, [(gate,), (gate.parent,)], name="<i>held</i>")
        job.futures[1].result(TIMEOUT_S)
        of_job = Read(job._repr_html_())
        stages = of_job.text[of_job.text.index("left") + 1 :][:7]
        assert "Job <i>held</i>" in of_job.text and stages == ["<i>held</i>", "2", "1", "0", "0", "0", "1"]
        of_client = Read(client._repr_html_())
        assert of_client.tags <= TAGS and "jobs: 1" in of_client.text and "ready" in of_client.text
        assert any("<b>ann</b>" in text for text in of_client.text)
        job.cancel(running=True)
    assert "closed" in Read(client._repr_html_()).text
    of_cluster = Read(cluster._repr_html_())
    assert cluster.addresses[0] in of_cluster.text and of_cluster.text.count("ready") == 2


def test_a_cluster_that_is_stopped() -> None:
    with LocalCluster(in_process=True, slots=1) as here:
        assert "in this process" in Read(here._repr_html_()).text
    assert "stopped" in Read(here._repr_html_()).text


# ---- how far jobs are ------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_stage_or_job(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = client.submit_calls(tasks.square, [(number,) for number in range(3)], name="squares")
    failing = client.submit_calls(tasks.fail, [("a",)])
    failing.wait(TIMEOUT_S)
    job.results(TIMEOUT_S)
    assert progress_rows([job, failing]) == [
        (job.job_id[:8], "squares", 3, 3, 0, 0, 0, 0),
        (failing.job_id[:8], "fail", 1, 0, 1, 0, 0, 0),
    ]
    monkeypatch.setattr(progress_table, "ROWS_MAX", 0)
    assert progress_rows([job])[0][1:3] == ("squares", 3)


class Shown:
    """A display that remembers."""

    def __init__(self) -> None:
        self.rows: list[Sequence[Row]] = []
        self.closed = False

    def show(self, title: str, rows: Sequence[Row]) -> None:
        self.rows.append(rows)

    def close(self) -> None:
        self.closed = True


def test_the_table_is_shown_until_all_have_ended(client: Client, gate: Path) -> None:
    job = client.submit_calls(tasks.hold, [(gate,)], name="held")
    shown = Shown()

    class Opening(Shown):
        def show(self, title: str, rows: Sequence[Row]) -> None:
            shown.show(title, rows)
            gate.touch()

        close = staticmethod(lambda: setattr(shown, "closed", True))  # type: ignore[assignment]

    progress_table.watch([job], 0.05, Opening)
    assert shown.rows[0][0][-1] == 1 and shown.rows[-1][0][-1] == 0 and shown.closed


def test_where_there_is_no_terminal_it_is_written_once(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    job = client.submit_calls(tasks.square, [(1,)], name="[red]squares")
    client.watch(job, interval_s=0.05)
    written = capsys.readouterr().err
    assert written.count("finished") == 1 and "[red]squares" in written


def test_in_a_notebook_an_output_of_the_cell_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython
    import IPython.display

    shown: list[str] = []

    def display(html: Any, display_id: bool) -> Any:
        assert display_id
        shown.append(html.data)
        return SimpleNamespace(update=lambda html: shown.append(html.data))

    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    assert isinstance(progress_table._display_here(), NotebookDisplay)
    output = NotebookDisplay()
    output.show("one", [])
    output.show("two", [("id", EVIL, 1, 1, 0, 0, 0, 0)])
    assert len(shown) == 2 and Read(shown[1]).tags <= TAGS
    monkeypatch.delitem(sys.modules, "IPython")
    assert not progress_table.in_notebook()


@pytest.mark.parametrize(("jobs", "interval_s", "said"), [([1], 1.0, "jobs: 1"), ([], 0.0, "interval_s: 0.0")])
def test_what_cannot_be_watched(client: Client, jobs: list[Any], interval_s: float, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        client.watch(*jobs, interval_s=interval_s)
