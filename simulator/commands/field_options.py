"""Command-line options made of the fields of dataclasses: a new field is a new option.

The flag is the field's name, the default the field's. The help comes from the field's metadata ("help"), or else from
the option of the same name of the daemons: what they have, the simulator sets in the same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import click

from node_monitor.options import NodeMonitorOptions
from scheduler.options import SchedulerOptions
from sparrow_py.errors import InvalidRequest

KINDS: dict[Any, type] = {int: int, float: float, str: str}


def options_of(settings: type, helps: Mapping[str, str], *, skip: tuple[str, ...] = ()) -> list[click.Option]:
    """An option for each field that a command line can give: those that are numbers, texts or yes and no."""
    hints = get_type_hints(settings)
    return [
        _option(field, hints[field.name], helps)
        for field in dataclasses.fields(settings)
        if field.init and field.name not in skip and (hints[field.name] is bool or hints[field.name] in KINDS)
    ]


def _option(field: dataclasses.Field[Any], hint: Any, helps: Mapping[str, str]) -> click.Option:
    flag = flag_of(field.name)
    help_text = helps.get(field.name) or field.metadata.get("help") or _help_of_daemon(field.name)
    if hint is bool:
        flag = f"{flag}/--no-{flag[2:]}"
    return click.Option(
        [flag, field.name], default=field.default, type=KINDS.get(hint, bool), help=help_text, show_default=True
    )


def _help_of_daemon(name: str) -> str:
    for daemon in (SchedulerOptions, NodeMonitorOptions):
        for field in dataclasses.fields(daemon):
            if field.name == name and "help" in field.metadata:
                return str(field.metadata["help"])
    return ""


def flag_of(name: str) -> str:
    """The flag of a field."""
    return "--" + name.replace("_", "-")


def made(settings: type, values: Mapping[str, Any], **more: Any) -> Any:
    """The settings object, its fields taken from the command's values where they are there."""
    names = {field.name for field in dataclasses.fields(settings) if field.init}
    return settings(**{name: value for name, value in values.items() if name in names} | more)


class FlagCommand(click.Command):
    """A command whose errors about a field name its flag."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run."""
        try:
            return super().invoke(ctx)
        except InvalidRequest as error:
            raise _about_flag(error, self) from None


def _about_flag(error: InvalidRequest, command: click.Command) -> InvalidRequest:
    """The error, with the flag in place of the field's name if the command has such a flag."""
    flag = flag_of(error.field)
    if any(flag in parameter.opts for parameter in command.params):
        return type(error)(flag, error.value, error.allowed)
    return error
