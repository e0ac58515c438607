"""Options: each a field of a dataclass, with one name in flag, environment and file.

Flag over environment (`SPARROW_…`) over TOML over default; click does the merging. A field
made by `option` says in `help` what it means, its unit and what to choose.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_type_hints

import click

from sparrow_py import profiles
from sparrow_py.access.principals import Tokens
from sparrow_py.access.secret_files import read_tokens, tls_of
from sparrow_py.auth import TLS
from sparrow_py.daemon.version import version_option
from sparrow_py.errors import InvalidOption, InvalidRequest, SparrowError
from sparrow_py.timing.heartbeats import HEARTBEAT_MIN_S

ENVIRONMENT_PREFIX = "SPARROW"
_FILE = "sparrow_py.daemon.options.file"
"""Where a context keeps the path of its TOML file."""
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    click.BOOL.name: ((bool,), "true or false"),
    click.INT.name: ((int,), "a whole number"),
    click.FLOAT.name: ((int, float), "a number"),
    click.STRING.name: ((str,), "a text"),
}
"""By click's names of types: what a value of an option may be in a TOML file, and how errors say it."""
T = TypeVar("T")


def option(default: Any, help: str, *, many: bool = False, flag: str | None = None) -> Any:
    """A dataclass field that is an option. `many`: may be given several times, a tuple of strings."""
    return dataclasses.field(default=default, metadata={"help": help, "many": many, "flag": flag})


def load_toml(path: str) -> dict[str, Any]:
    """The options in a TOML file; `InvalidOption` if it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidOption("config", path, f"a readable TOML file ({error})") from None


class WrongOption(click.ClickException):
    """An option has a value that cannot be, wherever it comes from: the exit code is that of a mistake in a flag."""

    exit_code = click.UsageError.exit_code


class _OneLineErrors(click.Command):
    """Says what is wrong with its arguments on one line, without the usage."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = None
            raise


def command(name: str, options: type[T], run: Callable[[T], None], help: str) -> click.Command:
    """The command line of a daemon: parses into `options` and calls `run` with them."""

    @click.pass_context
    def callback(ctx: click.Context, /, **values: Any) -> None:
        # One line, no traceback: the mistake is the caller's and the message names it.
        try:
            run(options(**_with_profile(ctx, options, values)))
        except InvalidRequest as error:
            raise WrongOption(_of_who_stated_it(ctx, error)) from None
        except SparrowError as error:
            raise click.ClickException(str(error)) from None

    hints = get_type_hints(options)  # Once: for each field it would take a tenth of a daemon's start.
    fields = [field for field in dataclasses.fields(options) if field.init]  # type: ignore[arg-type]
    params: list[click.Parameter] = [_parameter(field, hints[field.name]) for field in fields]
    params.append(
        click.Option(
            ["--config"],
            expose_value=False,
            is_eager=True,
            callback=_use_config,
            metavar="FILE",
            help="TOML file with options by their flags' names, with _ for -.",
        )
    )
    params.append(version_option(name))
    settings = {
        "auto_envvar_prefix": ENVIRONMENT_PREFIX,
        "show_default": True,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    }
    return _OneLineErrors(name, params=params, callback=callback, help=help, context_settings=settings)


def parse(options: type[T], arguments: list[str], *, environment: bool = True) -> T:
    """The options that these command-line arguments (and the environment, if it is to be asked) give; raises as click
    does."""
    parsed: list[T] = []
    heeded = {} if environment else {"auto_envvar_prefix": None}
    command("sparrow", options, parsed.append, "").main(arguments, standalone_mode=False, **heeded)
    return parsed[0]


def _of_who_stated_it(ctx: click.Context, error: InvalidRequest) -> str:
    """The error's text, with the option's name as it was stated."""
    option = f"{error.field}: "
    if error.field not in ctx.params or not str(error).startswith(option):
        return str(error)
    return f"{_as_stated(ctx, error.field)}: {str(error).removeprefix(option)}"


def _as_stated(ctx: click.Context, name: str) -> str:
    """An option's name, as it is where its value comes from: the file's path before it, or the variable."""
    source = ctx.get_parameter_source(name)
    if source is click.core.ParameterSource.DEFAULT_MAP:
        return f"{ctx.meta[_FILE]}: {name}"
    return f"{ctx.auto_envvar_prefix}_{name.upper()}" if source is click.core.ParameterSource.ENVIRONMENT else name


def given(ctx: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Of a command's values those that somebody stated, wherever: they are not the options' defaults."""
    default = click.core.ParameterSource.DEFAULT
    return {name: value for name, value in values.items() if ctx.get_parameter_source(name) is not default}


def _with_profile(ctx: click.Context, options: type, values: dict[str, Any]) -> dict[str, Any]:
    """The values, with those of the profile in place of defaults; `InvalidOption` if a stated one contradicts it."""
    if not issubclass(options, DaemonOptions) or not options.room:
        return values
    return values | profiles.completed(values["profile"], [options.room], given(ctx, values))


def _use_config(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path:
        try:
            values = load_toml(path)
        except InvalidOption as error:
            raise click.BadParameter(str(error)) from None
        known = {str(parameter.name) for parameter in context.command.params if parameter.expose_value}
        unknown = sorted(set(values) - known)
        if unknown:
            raise click.BadParameter(
                f"{path}: unknown options: {', '.join(_suggested(name, known) for name in unknown)}"
            )
        context.meta[_FILE] = path
        many = {parameter.name for parameter in context.command.params if parameter.multiple}
        # One value of an option that may be given several times need not be written as a list.
        context.default_map = {
            name: [value] if name in many and not isinstance(value, list) else value for name, value in values.items()
        }


class _Option(click.Option):
    """An option that takes of a TOML file only values of its own type: click would cut 1.5 to 1, and take true for 1.

    A value of another type is a `WrongOption`, which names the option as it was stated.
    """

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        name = _as_stated(ctx, str(self.name))
        types, allowed = _TYPES[self.type.name]
        if ctx.get_parameter_source(str(self.name)) is click.core.ParameterSource.DEFAULT_MAP:
            for one in value if self.multiple else [value]:
                if type(one) not in types:
                    raise WrongOption(str(InvalidOption(name, one, allowed)))
        try:
            return super().type_cast_value(ctx, value)
        except (click.BadParameter, OverflowError):
            raise WrongOption(str(InvalidOption(name, value, allowed))) from None


def _suggested(name: str, known: Iterable[str]) -> str:
    """The unknown name, with the known one that may be meant."""
    close = difflib.get_close_matches(name, known, 1)
    return f"{name} (did you mean {close[0]}?)" if close else name


def _parameter(field: dataclasses.Field[Any], hint: Any) -> click.Option:
    flag = field.metadata["flag"] or "--" + field.name.replace("_", "-")
    help_text, many = field.metadata["help"], field.metadata["many"]
    if hint is bool:
        return _Option([f"{flag}/--no-{flag[2:]}", field.name], default=field.default, help=help_text)
    kind = next((kind for kind in (int, float, str) if hint in (kind, kind | None)), str)
    return _Option(
        [flag, field.name],
        default=list(cast("tuple[str, ...]", field.default)) if many else field.default,
        type=kind,
        multiple=many,
        help=help_text,
        show_default=field.default not in (None, "", ()),
    )


def parse_pairs(name: str, pairs: tuple[str, ...]) -> dict[str, str]:
    """`("a=1", "b=2")` as a dict; `InvalidOption` names the pair that is none, or whose key has been there before."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InvalidOption(name, pair, "key=value")
        if key in parsed:
            raise InvalidOption(name, pair, f"each key once; {key!r} is {parsed[key]!r} already")
        parsed[key] = value
    return parsed


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raise `InvalidOption` unless the condition holds."""
    if not condition:
        raise InvalidOption(name, value, allowed)


LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
BEYOND_LOOPBACK = "tokens (--token-file or SPARROW_TOKEN) or mutual TLS (--tls-cert, --tls-key and --tls-ca)"
"""What a daemon must have that listens for other machines."""


@dataclasses.dataclass(kw_only=True)
class DaemonOptions:
    """The options that all daemons have. room: whose part of a profile is theirs."""

    room: ClassVar[str] = ""

    host: str = option("127.0.0.1", "Address to listen on. Anything beyond loopback needs tokens or TLS.")
    port: int = option(0, "TCP port; 0 takes a free one.")
    token_file: str | None = option(
        None,
        "File with the cluster's secret, or with several tokens, a line each: cluster SECRET, or client USER SECRET. "
        "Read again on SIGHUP. Or set SPARROW_TOKEN to the cluster's secret.",
    )
    tls_cert: str | None = option(
        None, "PEM file with this daemon's certificate: with tls_key and tls_ca, mutual TLS. Read again on SIGHUP."
    )
    tls_key: str | None = option(None, "PEM file with the certificate's key, not encrypted.")
    tls_ca: str | None = option(None, "PEM file with the authorities that peers' certificates must come from.")
    allowed_host: tuple[str, ...] = option(
        (),
        "A name, besides localhost and any address, that requests may be addressed to where no token is asked for. "
        "Others are refused: a web page could have its own name lead here.",
        many=True,
    )
    drain_timeout_s: float = option(
        30.0, "After SIGTERM: seconds to finish what runs before the daemon ends all the same."
    )
    profile: str = option(
        profiles.DEFAULT,
        "default, or paper: Sparrow as its paper prints it, without the additions that can be switched off one by one. "
        "Give all schedulers and node monitors the same.",
    )
    heartbeat_s: float = option(
        10.0, "A peer silent for one and a half times this is taken for dead. Shorter finds it sooner, costs traffic."
    )
    link_backlog_bytes_max: int = option(
        256 << 20, "A peer that reads too slowly is cut off when this many bytes wait on its link."
    )
    log_level: str = option("info", "debug, info, warning or error.")
    warnings_fd: int | None = option(
        None, "Write the log's warnings and errors to this inherited descriptor, too; it is never waited for."
    )
    listen_fd: int | None = option(
        None, "Listen on this inherited socket, in place of host and port (systemd's socket activation starts at 3)."
    )
    also_listen_fd: int | None = option(
        None,
        "Listen on this inherited Unix socket, too. Its directory must be this account's own and closed to others "
        "(mode 0700). Not with TLS.",
    )
    exit_on_stdin_eof: bool = option(
        False, "End at once when standard input closes: for daemons that must end with the process that started them."
    )

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, "port", self.port, "a whole number from 0 to 65535")
        levels = ("debug", "info", "warning", "error")
        require(self.log_level in levels, "log_level", self.log_level, ", ".join(levels))
        require(self.drain_timeout_s >= 0, "drain_timeout_s", self.drain_timeout_s, "a number from 0")
        heartbeats = f"a number of seconds from {HEARTBEAT_MIN_S:g}"
        require(self.heartbeat_s >= HEARTBEAT_MIN_S, "heartbeat_s", self.heartbeat_s, heartbeats)
        profiles.check_profile(self.profile)
        if self.room:
            profiles.check_values(self.profile, [self.room], vars(self))
        backlog = self.link_backlog_bytes_max
        require(backlog >= 1 << 20, "link_backlog_bytes_max", backlog, "a whole number from 1048576")
        self.tokens: Tokens = read_tokens(self.token_file)
        self.tls: TLS | None = tls_of(self.tls_cert, self.tls_key, self.tls_ca)
        require(
            self.also_listen_fd is None or self.tls is None,
            "also_listen_fd", self.also_listen_fd, "none where TLS is asked for, which is not spoken there",
        )  # fmt: skip
        loopback = self.host in LOOPBACK_HOSTS
        require(loopback or self.guarded, "host", self.host, f"a loopback address, or any other with {BEYOND_LOOPBACK}")

    @property
    def guarded(self) -> bool:
        """Whether who dials must prove who it is; else only this machine may."""
        return len(self.tokens) > 0 or self.tls is not None

    def of_profile(self) -> dict[str, str]:
        """The profile, and all options that profiles set in this room, as text."""
        values = {name: getattr(self, name) for name in profiles.settings(self.profile, self.room)}
        return {"profile": self.profile} | {
            name: str(value).lower() if isinstance(value, bool) else f"{value}" for name, value in values.items()
        }

    def names(self) -> list[str]:
        """The names that this daemon is known by."""
        return list(self.allowed_host)
