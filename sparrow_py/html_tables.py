"""What notebooks show of our objects: a heading, facts and tables as HTML.

All text is escaped: names of users, jobs and nodes, and errors, may have anything in them.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

ROWS_MAX = 20
"""Rows of a table that are shown; of further ones, how many."""
Cell = str | int | float


def html_block(
    title: str,
    facts: Iterable[tuple[str, Cell]] = (),
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[Cell]] = (),
    *more: str,
) -> str:
    """A heading, facts by name, and a table if it has any rows; `more` HTML comes after that."""
    named = "".join(
        f"<tr><th style='text-align:left'>{_text(name)}</th><td style='text-align:left'>{_text(value)}</td></tr>"
        for name, value in facts
    )
    parts = [f"<strong>{_text(title)}</strong>", f"<table>{named}</table>" if named else "", html_table(columns, rows)]
    return f"<div>{''.join(parts)}{''.join(more)}</div>"


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table, of `ROWS_MAX` rows at most; empty if there are none."""
    if not rows:
        return ""
    heads = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows[:ROWS_MAX])
    more = len(rows) - ROWS_MAX
    foot = f"<tr><td colspan='{len(columns)}'>and {more:,} more</td></tr>" if more > 0 else ""
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}{foot}</tbody></table>"


def _text(value: Cell) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return html.escape(f"{value:,}" if isinstance(value, int) else value)
