"""`--watch` of commands that print a table: again and again, until Ctrl-C."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from frontends.cli.ranges import NumberRange

WATCH_S_MIN, WATCH_S_MAX = 0.2, 3600.0
WATCH_S_DEFAULT = 2.0
CLEAR_SCREEN = "\x1b[H\x1b[2J"

F = TypeVar("F", bound=Callable[..., Any])


def watch_option(function: F) -> F:
    """Add `--watch [SECONDS]`: the command is carried out again every so many seconds."""

    @functools.wraps(function)
    def again_and_again(*args: Any, watch: float | None, **values: Any) -> Any:
        if watch is None:
            return function(*args, **values)
        while True:
            if sys.stdout.isatty():
                click.echo(CLEAR_SCREEN, nl=False)
            function(*args, **values)
            sys.stdout.flush()
            try:
                time.sleep(watch)
            except KeyboardInterrupt:
                return 0

    option = click.option(
        "--watch",
        type=NumberRange(WATCH_S_MIN, WATCH_S_MAX),
        is_flag=False,
        flag_value=WATCH_S_DEFAULT,
        metavar="[SECONDS]",
        help=f"Print it again every so many seconds (default {WATCH_S_DEFAULT:g}), until Ctrl-C.",
    )
    return option(again_and_again)  # type: ignore[return-value]
