"""A progress bar on standard error while futures complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from typing import Any


def show_progress(futures: Sequence[Future[Any]], name: str) -> None:
    """A progress bar on standard error until all futures are done."""
    bar = progress_bar(name, len(futures))
    try:
        for _ in as_completed(futures):
            bar(1)
    finally:
        bar(None)


def progress_bar(name: str, total: int | None = None) -> Callable[[int | None], None]:
    """A bar that `bar(n)` advances and `bar(None)` ends."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    progress = Progress(SpinnerColumn(), *Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(),
                        console=Console(stderr=True))  # fmt: skip
    task = progress.add_task(name, total=total)
    progress.start()

    def advance(count: int | None) -> None:
        if count is None:
            progress.stop()
        else:
            progress.advance(task, count)

    return advance
