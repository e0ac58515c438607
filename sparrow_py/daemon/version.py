"""`--version`, which all commands have."""

from __future__ import annotations

from functools import cache
from typing import Any

import click

from sparrow_py.distribution import DISTRIBUTION

UNKNOWN = "of a source tree that is not installed"


def version() -> str:
    """The installed version."""
    return _version_of(DISTRIBUTION)


@cache
def _version_of(distribution: str) -> str:
    from importlib import metadata  # Takes a while, and is hardly ever asked for.

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return UNKNOWN


def version_option(command: str) -> click.Option:
    """The option of the command of this name: says the version on a line, and ends it.

    Not from the environment: SPARROW_VERSION may be set for other reasons.
    """

    def show(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted and not context.resilient_parsing:
            click.echo(f"{command} {version()}")
            context.exit()

    settings: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "allow_from_autoenv": False}
    return click.Option(["--version"], callback=show, help="Show the version and exit.", **settings)
