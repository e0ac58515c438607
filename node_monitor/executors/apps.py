"""Which apps a node monitor runs, and the commands that start their executors."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from node_monitor.executors.executor_state import AppPlan
from node_monitor.host.accounts import OWN, UserAccounts
from node_monitor.options import NodeMonitorOptions
from sparrow_py import start
from sparrow_py.errors import InvalidOption

NAMES_TAKEN = ("noop", "sleep", "spin", "python", "command", "sql", "dataflow", "workflow")
"""The apps that come with the node monitor, whether or not it is to run them."""
NO_USER_SITE = ("-s",)
"""Flags of an interpreter that runs a module of ours. Without the packages of the user that it runs as: whose tasks may
write there would otherwise choose what others' tasks run in."""
FORK_SERVER = "sparrow_py.executors.fork_server"
APP_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of others: they become part of executors' names and of directories'."""


@dataclass(frozen=True, slots=True)
class App:
    """A plan for the core, and the command of an executor process (empty: built in, or attached by others).

    Where executors are forked, it is that of their fork server.
    """

    plan: AppPlan
    argv: tuple[str, ...] = ()


def offered_apps(options: NodeMonitorOptions, *, attached: tuple[str, ...] = ()) -> dict[str, App]:
    """The apps of a node by name. Executors of `attached` apps are not started here but connect themselves.

    `InvalidOption` for an app that cannot be or is there already, and for one to warm that is not.
    """
    python = options.python or sys.executable
    path = [str(Path(entry).absolute()) for entry in options.python_path]
    apps = [
        App(AppPlan("noop", one_process=True, supervised=False)),
        App(AppPlan("sleep", one_process=True, supervised=False)),
        App(AppPlan("spin", forks=True), executor_command(FORK_SERVER, "frontends.synthetic.spin_executor", path=path)),
        App(
            AppPlan("python", runtime=python_version(python), supervised="python" not in attached, forks=True),
            _python_workers(python, path),
        ),
        App(
            AppPlan("dataflow", runtime=python_version(python), forks=True),
            _python_workers(python, path, "frontends.dataflow.worker"),
        ),
    ]
    if options.enable_command:
        argv = executor_command("frontends.command.executor", path=path)
        apps.append(App(AppPlan("command", one_process=True), argv))
    if options.accounts.maps:
        _refuse_sql(options)
    elif importlib.util.find_spec("duckdb") is not None:  # Where the extra `sql` is installed.
        command = executor_command("frontends.sql.executor", *_sql_data(options), path=path)
        apps.append(App(AppPlan("sql", one_process=True), command))
    if all(importlib.util.find_spec(package) is not None for package in ("pyarrow", "sqlglot")):  # Extra `workflow`.
        arguments = (f"--engine-idle-s={options.engine_idle_s}", *(f"--path={entry}" for entry in path))
        command = executor_command("frontends.workflow.executor", *arguments, path=path)
        apps.append(App(AppPlan("workflow", one_process=True), command))
    by_name = {app.plan.app: app for app in apps}
    for option, text, app in _external_apps(options):
        name = app.plan.app
        if name in NAMES_TAKEN or name in by_name:
            raise InvalidOption(option, text, f"an app that is not there already; {name!r} is")
        by_name[name] = app
    for name in options.warm:
        if name not in by_name:
            raise InvalidOption("warm", name, ", ".join(by_name))
    for name in by_name.keys() & set(options.attribute_apps):
        by_name[name] = replace(by_name[name], plan=replace(by_name[name].plan, gives_attributes=True))
    return by_name


def by_account(apps: dict[str, App], users: UserAccounts) -> dict[str, App]:
    """The apps by their plans' names, once for each account as which their executors run.

    What is not started here runs as whoever starts it.
    """
    found = []
    for app in apps.values():
        if not app.plan.supervised:
            accounts: tuple[str, ...] = (OWN,)
        else:
            accounts = users.names
        found += [replace(app, plan=replace(app.plan, account=account)) for account in accounts]
    return {app.plan.name: app for app in found}


def executor_command(module: str, *arguments: str, path: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that runs this module of ours as an executor of ours or its fork server.

    What it needs of others it finds where the interpreter does, or else in `path`.
    """
    return tuple(start.command(module, *arguments, path=path, flags=NO_USER_SITE))


def _python_workers(python: str, path: Sequence[str], executor: str = "frontends.python.executor") -> tuple[str, ...]:
    """The command of the fork server of an app whose tasks are Python and look for modules in `path` first."""
    if python == sys.executable:
        first = path or (() if sys.flags.safe_path else (os.curdir,))
        return executor_command(FORK_SERVER, executor, *first, path=path)
    # Another interpreter has a sparrow-py and a standard library of its own.
    ours = set(sysconfig.get_paths().values())
    first = [entry for entry in path if entry not in ours] or [os.curdir]
    return (python, *NO_USER_SITE, "-P", "-m", FORK_SERVER, executor, *first)


def _refuse_sql(options: NodeMonitorOptions) -> None:
    """Nothing may ask for the app sql where users have accounts.

    Its one executor works for all users, as one account: tasks of that account could end it, read what the next one is
    started with, and change other users' results.
    """
    allowed = "no app sql where run_as maps users to accounts: run it on a node monitor of its own with one account"
    if "sql" in options.warm:
        raise InvalidOption("warm", "sql", allowed)
    if options.sql_data:
        raise InvalidOption("sql_data", " ".join(options.sql_data), allowed)


def _sql_data(options: NodeMonitorOptions) -> list[str]:
    """What the executor of the app sql is told about whose data sets are whose."""
    if not options.sql_data and not options.guarded:
        return ["--any-data"]  # Users are whoever they say.
    return [f"--data={text}" for text in options.sql_data]


def _external_apps(options: NodeMonitorOptions) -> Iterator[tuple[str, str, App]]:
    """(option, its value, app) of each app that an operator adds."""
    for option, texts, one_process in (
        ("executor", options.executor, False),
        ("shared_executor", options.shared_executor, True),
    ):
        for text in texts:
            name, equals, line = text.partition("=")
            argv = _split(option, text, line) if equals else ()
            if not argv or not APP_NAME.fullmatch(name):
                raise InvalidOption(option, text, f"APP=COMMAND LINE, where APP matches {APP_NAME.pattern}")
            yield option, text, App(AppPlan(name, one_process=one_process), argv)
    for name in options.attach:
        if not APP_NAME.fullmatch(name):
            raise InvalidOption("attach", name, f"the name of an app, which matches {APP_NAME.pattern}")
        yield "attach", name, App(AppPlan(name, supervised=False, awaited=True))


def _split(option: str, text: str, line: str) -> tuple[str, ...]:
    """The words of a command line, as a shell would split it."""
    if "\0" in line:
        raise InvalidOption(option, text, "a command line without NUL characters")
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise InvalidOption(option, text, f"a command line that a shell could split ({error})") from None


def python_version(python: str) -> str:
    """The interpreter's major.minor version: functions pickled by one are only good for the same."""
    if python == sys.executable:
        return f"{sys.version_info[0]}.{sys.version_info[1]}"
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", code], capture_output=True, check=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        raise InvalidOption("python", python, f"a Python interpreter ({error})") from None
    return answer.stdout.strip()
