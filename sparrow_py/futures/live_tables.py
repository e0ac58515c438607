"""Tables in notebooks that change while what they show does: HTML widgets, where ipywidgets is installed.

Whoever shows itself has `_repr_mimebundle_` return `live_mimebundle`. Where there is no widget to be had, that is
empty, and IPython shows `_repr_html_`, which does not change.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sparrow_py.futures.progress_table import in_notebook

TABLES_MAX = 10
"""Tables that change at a time; of more the oldest stay as they are."""
INTERVAL_S = 1.0
RENDER_SHARE = 0.1
"""To make the tables anew takes this part of the time at most."""
VIEW = "application/vnd.jupyter.widget-view+json"
"""What a front end that has widgets shows before all else."""


@dataclass(eq=False, slots=True)
class LiveTable:
    """A widget, what it shows, and whether that changes no more."""

    widget: Any
    render: Callable[[], str]
    is_over: Callable[[], bool]

    def update(self) -> bool:
        """Show what there is now; whether it may change again."""
        if getattr(self.widget, "comm", True) is None:  # The user has closed it.
            return False
        over = self.is_over()  # Before it is looked at, so that the last look sees the end.
        try:
            html = self.render()
        except Exception:  # What it shows is gone: what was shown last stays.
            return False
        if html != self.widget.value:
            self.widget.value = html
        return not over


class LiveTables:
    """All of this process, which one thread updates while there are any."""

    def __init__(self) -> None:
        self.tables: deque[LiveTable] = deque(maxlen=TABLES_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, table: LiveTable) -> None:
        """It changes from now on."""
        with self._lock:
            self.tables.append(table)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sparrow-live-tables", daemon=True)
                self._thread.start()

    def update(self) -> bool:
        """Have all show what there is now; whether any may change again. Of the updating thread."""
        for table in list(self.tables):
            if not table.update():
                with self._lock, contextlib.suppress(ValueError):  # It had to make room for another meanwhile.
                    self.tables.remove(table)
        with self._lock:
            if not self.tables:
                self._thread = None
            return bool(self.tables)

    def _run(self) -> None:
        while True:
            began_s = time.monotonic()
            if not self.update():
                return
            time.sleep(max(INTERVAL_S, (time.monotonic() - began_s) / RENDER_SHARE))


live_tables = LiveTables()


def live_mimebundle(render: Callable[[], str], is_over: Callable[[], bool]) -> dict[str, Any]:
    """A widget that shows what `render` returns, again and again until `is_over`; empty where widgets are not to be
    had."""
    if not in_notebook():
        return {}
    try:
        widgets: Any = import_module("ipywidgets")
    except ImportError:
        return {}
    widget = widgets.HTML(render())
    view = (widget._repr_mimebundle_() or {}).get(VIEW)
    if view is None:
        return {}
    live_tables.add(LiveTable(widget, render, is_over))
    return {VIEW: view}
