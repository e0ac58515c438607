"""`sparrow top`: what schedulers do, live in the terminal."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from frontends.cli.connection import ask_all, connection_options
from frontends.cli.nodes import merged
from frontends.cli.ranges import NumberRange
from frontends.cli.top_view import JOBS, KEYS, NODES, VIEWS, Choice, screen, sort_keys, summary
from frontends.daemon_http import listed
from sparrow_py.access.credentials import Access
from sparrow_py.errors import InvalidOption, SparrowError
from sparrow_py.logs.printable import printable

INTERVAL_S_MIN, INTERVAL_S_MAX = 0.2, 3600.0
PIPE_COLUMNS = 80
SEARCH_CHARS_MAX = 256
FRAME_LINES = 3
"""Besides the summary and the rows: the table's head, the count of rows that are not shown, and the keys."""
ENDS = frozenset({"q", "Q", "\x1b", "\x04"})
ESCAPE = b"\x1b"
SEQUENCE_BYTES_MAX = 16
"""Of what a key sends after Escape."""


@click.command(short_help="Show what schedulers do, live.")
@connection_options
@click.option("--once", is_flag=True, help="Print it once, all rows, and end: for scripts.")
@click.option("--view", type=click.Choice(VIEWS), default=JOBS, show_default=True, help="What the table has.")
@click.option("--sort", metavar="COLUMN", help="The column that sorts the table, as its head, in small letters.")
@click.option("--search", default="", metavar="TEXT", help="Only jobs whose id, name, user or app has this text.")
@click.option(
    "--interval",
    type=NumberRange(INTERVAL_S_MIN, INTERVAL_S_MAX),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="From one look to the next.",
)
def top(
    schedulers: list[str], access: Access, once: bool, view: str, sort: str | None, search: str, interval: float
) -> int:
    """Show nodes, slots, rates and waiting times, and a table of jobs, users or nodes.

    SLOTS and BUSY are those that the schedulers asked have; times are of the last ten seconds, of several schedulers
    the longest. Keys: q ends, j, u and n show jobs, users and nodes, s sorts by the next column, r reverses.

    \b
    Examples:
      sparrow top
      sparrow top --once --view users --sort waiting
    """
    if len(search) > SEARCH_CHARS_MAX:
        raise InvalidOption("search", f"{len(search)} characters", f"at most {SEARCH_CHARS_MAX} characters")
    choice = _choice(view, sort)
    look = _Look(schedulers, access, search)
    if once or not sys.stdout.isatty() or not sys.stdin.isatty():
        states, nodes = look.now(choice)
        Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS).print(screen(states, nodes, choice))
        return 0
    _live(look, choice, interval)
    return 0


def _choice(view: str, sort: str | None) -> Choice:
    choice = Choice(view)
    if sort is None:
        return choice
    keys = sort_keys(view)
    if sort not in keys:
        raise InvalidOption("sort", sort, f"one of {', '.join(keys)}")
    return Choice(view, {**choice.sort, view: keys[sort]})


class _Look:
    """Asks the schedulers."""

    def __init__(self, schedulers: list[str], access: Access, search: str) -> None:
        self._schedulers = schedulers
        self._access = access
        self._path = f"/v1/state?search={quote(search)}" if search else "/v1/state"

    def now(self, choice: Choice) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Their states, and their nodes if these are shown."""
        answers = ask_all(self._schedulers, self._access, "GET", self._path)
        states = [answer.body for answer in answers if answer.status == 200]
        if not states:
            raise SparrowError("the schedulers are of a version that has no /v1/state")
        nodes: list[dict[str, Any]] = []
        if choice.view == NODES:
            nodes = merged(entry for _, entry in listed(self._ask_nodes(), "nodes"))
        return states, nodes

    def _ask_nodes(self) -> list[Any]:
        return ask_all(self._schedulers, self._access, "GET", "/v1/nodes")


def _live(look: _Look, choice: Choice, interval_s: float) -> None:
    console, gone_since, problem = Console(), "", ""
    states, nodes = look.now(choice)
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            room = console.height - len(summary(states)) - FRAME_LINES
            foot = Text(problem or KEYS, style="bold red" if problem else "dim", no_wrap=True, overflow="ellipsis")
            live.update(Group(screen(states, nodes, choice, room), foot), refresh=True)
            key = pressed(interval_s)
            if key in ENDS:
                return
            choice = choice.pressed(key)
            try:
                states, nodes = look.now(choice)
                gone_since = problem = ""
            except SparrowError as error:  # What is shown is from before.
                gone_since = gone_since or time.strftime("%H:%M:%S")
                problem = f"since {gone_since}: {printable(str(error))}; trying again"


def key_pressed(descriptor: int, seconds: float) -> str:
    """The key that comes to the terminal within so many seconds; empty if none does, or one that is no letter: arrows
    and their like come as Escape and more."""
    if not _is_ready(descriptor, seconds):
        return ""
    key = os.read(descriptor, 1)
    if key == ESCAPE and _is_ready(descriptor, 0.0):
        os.read(descriptor, SEQUENCE_BYTES_MAX)
        return ""
    return key.decode("ascii", "replace")


def _is_ready(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Keys without Enter, as long as the block lasts: what is given waits for one for so many seconds."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    tty.setcbreak(descriptor)
    try:
        yield partial(key_pressed, descriptor)
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
