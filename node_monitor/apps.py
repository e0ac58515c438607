"""Which apps a node monitor runs, and the commands that start their executors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from node_monitor.executor_state import AppPlan
from node_monitor.options import NodeMonitorOptions
from sparrow_py.errors import InvalidOption


@dataclass(frozen=True, slots=True)
class App:
    """A plan for the core, and the command of an executor process (empty: built in, or attached by others)."""

    plan: AppPlan
    argv: tuple[str, ...] = ()


def offered_apps(options: NodeMonitorOptions, *, attached: tuple[str, ...] = ()) -> dict[str, App]:
    """The apps of a node by name. Executors of `attached` apps are not started here but connect themselves."""
    python = options.python or sys.executable
    apps = [
        App(AppPlan("noop", one_process=True, supervised=False)),
        App(AppPlan("sleep", one_process=True, supervised=False)),
        App(AppPlan("spin"), (sys.executable, "-m", "frontends.synthetic.spin_executor")),
        App(
            AppPlan("python", runtime=python_version(python), supervised="python" not in attached),
            (python, "-m", "frontends.python.executor"),
        ),
    ]
    if options.enable_command:
        argv = (sys.executable, "-m", "frontends.command.executor")
        apps.append(App(AppPlan("command", one_process=True), argv))
    by_name = {app.plan.app: app for app in apps}
    for name in options.warm:
        if name not in by_name:
            raise InvalidOption("warm", name, ", ".join(by_name))
    return by_name


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
