"""Tables in notebooks that change: who has which, for how long, and what is shown where there are no widgets."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparrow_py import Client
from sparrow_py.futures import live_tables, progress_table, task_rows
from sparrow_py.futures.live_tables import TABLES_MAX, VIEW, LiveTable, LiveTables, live_mimebundle
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S


class Widget:
    """What is used of `ipywidgets.HTML`."""

    def __init__(self, value: str = "") -> None:
        self.shown = [value]
        self.comm: object | None = object()

    @property
    def value(self) -> str:
        return self.shown[-1]

    @value.setter
    def value(self, value: str) -> None:
        self.shown.append(value)

    def _repr_mimebundle_(self) -> dict[str, Any]:
        return {"text/plain": "HTML", VIEW: {"model_id": id(self)}}


class ByHand(LiveTables):
    """Updated by hand alone."""

    def _run(self) -> None: ...


def shows(*texts: str) -> Callable[[], str]:
    """One after the other, then an error."""
    left = iter(texts)
    return lambda: next(left)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Widget]:
    """A kernel of IPython with ipywidgets; the widgets that were made."""
    made: list[Widget] = []

    def html(value: str) -> Widget:
        made.append(Widget(value))
        return made[-1]

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[misc]
    monkeypatch.setitem(sys.modules, "ipywidgets", SimpleNamespace(HTML=html))  # type: ignore[misc]
    monkeypatch.setattr(live_tables, "live_tables", ByHand())
    return made


def test_a_table_changes_until_it_is_over() -> None:
    tables, widget, over = ByHand(), Widget("a"), False
    tables.add(LiveTable(widget, shows("a", "b", "c", "d"), lambda: over))
    assert tables.update() and widget.shown == ["a"]  # What is the same is not sent.
    assert tables.update() and widget.shown == ["a", "b"]
    over = True
    assert not tables.update() and widget.shown == ["a", "b", "c"]  # The last look sees the end.
    assert not tables.update() and widget.shown == ["a", "b", "c"]


def test_a_table_that_was_closed_or_cannot_be_made_is_let_go_of() -> None:
    tables, closed, failing = ByHand(), Widget("a"), Widget("b")
    closed.comm = None
    tables.add(LiveTable(closed, shows("c"), lambda: False))
    tables.add(LiveTable(failing, shows(), lambda: False))
    assert not tables.update() and not tables.tables
    assert (closed.shown, failing.shown) == (["a"], ["b"])


def test_of_more_tables_the_oldest_stay_as_they_are() -> None:
    tables = ByHand()
    widgets = [Widget() for _ in range(TABLES_MAX + 2)]
    for widget in widgets:
        tables.add(LiveTable(widget, lambda: "new", lambda: False))
    tables.update()
    assert [widget.value for widget in widgets] == ["", "", *["new"] * TABLES_MAX]


def test_the_thread_ends_with_the_last_table_and_another_begins() -> None:
    tables, widgets = LiveTables(), [Widget(), Widget()]
    for widget in widgets:
        may_end = threading.Event()
        tables.add(LiveTable(widget, lambda: "new", partial(may_end.wait, TIMEOUT_S)))
        thread = tables._thread
        assert thread is not None
        may_end.set()
        thread.join(TIMEOUT_S)
        assert tables._thread is None and not tables.tables
    assert [widget.value for widget in widgets] == ["new", "new"]


def test_jobs_and_clients_show_themselves_as_widgets(client: Client, gate: Path, notebook: list[Widget]) -> None:
    job = client.submit_calls(tasks.hold, [(gate,)], name="held")
    assert list(job._repr_mimebundle_(include=None)) == list(client._repr_mimebundle_()) == [VIEW]
    of_job, of_client = notebook
    assert "held" in of_job.value and "ready" in of_client.value and "ran s" not in of_job.value
    gate.touch()
    job.results(TIMEOUT_S)
    live_tables.live_tables.update()
    assert "ran s" in of_job.value and len(live_tables.live_tables.tables) == 1  # That of the client.


def test_without_ipywidgets_there_is_the_table_alone(notebook: list[Widget], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert live_mimebundle(shows("a"), lambda: False) == {} and not notebook


def test_in_a_terminal_there_is_no_widget(notebook: list[Widget], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython")
    assert live_mimebundle(shows("a"), lambda: False) == {} and not notebook
    assert not progress_table.in_notebook()


def test_tasks_that_failed_come_first_and_then_the_longest(client: Client) -> None:
    job = client.submit_calls(tasks.fail, [("<b>",)])
    job.wait(TIMEOUT_S)
    well = client.submit_calls(tasks.square, [(number,) for number in range(3)])
    well.results(TIMEOUT_S)
    rows = task_rows.task_rows([*well.futures, *job.futures])
    assert [row[1] for row in rows] == ["failed", "finished", "finished", "finished"]
    ran_s = [float(row[5]) for row in rows[1:]]
    assert ran_s == sorted(ran_s, reverse=True) and "&lt;b&gt;" in job._repr_html_()
