"""What all commands have in common: `--version`, suggestions, one exit code for mistakes, what is to be installed."""

import builtins
import importlib
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from frontends.cli.__main__ import main as sparrow
from frontends.demo.__main__ import main as demo
from loadgen.__main__ import LoadgenGroup
from loadgen.__main__ import main as loadgen
from node_monitor.__main__ import main as node_monitor
from node_monitor.conformance import main as conformance
from scheduler.__main__ import main as scheduler
from scheduler.options import SchedulerOptions
from simulator.__main__ import main as simulator
from sparrow_py.daemon import version
from sparrow_py.daemon.options import command
from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidOption

COMMANDS = {
    "sparrow": sparrow,
    "sparrow-scheduler": scheduler,
    "sparrow-node-monitor": node_monitor,
    "loadgen": loadgen,
    "simulator": simulator,
    "python -m frontends.demo": demo,
    "python -m node_monitor.conformance": conformance,
}
ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def invoke(asked: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(asked, list(arguments))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_its_version(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(COMMANDS[name], "--version")
    assert (result.exit_code, result.output) == (0, f"{name} {PYPROJECT['version']}\n")
    assert "--version" in invoke(COMMANDS[name], "--help").output


def test_the_version_is_not_asked_for_by_a_variable_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARROW_VERSION", "1")
    assert "port" in invoke(scheduler, "--port", "-1").output


def test_a_source_tree_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "DISTRIBUTION", "sparrow-py-that-nobody-has-installed")
    assert invoke(sparrow, "--version").output == f"sparrow {version.UNKNOWN}\n"


@pytest.mark.parametrize(
    ("asked", "arguments", "meant"),
    [
        (sparrow, ["node"], "nodes"),
        (sparrow, ["canel", "j"], "cancel"),
        (sparrow, ["nodes", "--jsn"], "--json"),
        (loadgen, ["rum"], "run"),
        (loadgen, ["run", "--probe-ration", "2"], "--probe-ratio"),
        (simulator, ["sok"], "soak"),
        (scheduler, ["--prot", "1"], "--port"),
        (node_monitor, ["--shceduler", "a:1"], "--scheduler"),
        (demo, ["--node-monitor", "2"], "--node-monitors"),
    ],
)
def test_what_is_mistyped_is_answered_with_what_may_be_meant(
    asked: click.Command, arguments: list[str], meant: str
) -> None:
    result = invoke(asked, *arguments)
    assert result.exit_code == 2
    assert f"'{meant}'" in result.output.partition("Did you mean")[2]


def test_an_option_mistyped_in_a_file_is_answered_so_too(tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text("prot = 1\nxyzzy = 2\nversion = 3\n")
    result = invoke(scheduler, "--config", str(path))
    assert result.exit_code == 2
    assert "unknown options: prot (did you mean port?), version, xyzzy" in result.output


@pytest.mark.parametrize(
    ("asked", "arguments", "environment", "names"),
    [
        (scheduler, ["--port", "70000"], {}, "port"),
        (scheduler, ["--port", "many"], {}, "port"),
        (scheduler, [], {"SPARROW_PORT": "70000"}, "SPARROW_PORT"),
        (scheduler, [], {"SPARROW_PORT": "many"}, "SPARROW_PORT"),
        (scheduler, ["--config", "{}/port = 70000"], {}, "options.toml: port: 70000"),
        (scheduler, ["--config", "{}/port = 'many'"], {}, "port"),
        (node_monitor, ["--scheduler", "nowhere"], {}, "scheduler: 'nowhere'"),
        (node_monitor, [], {"SPARROW_SCHEDULER": "nowhere"}, "SPARROW_SCHEDULER: 'nowhere'"),
        (node_monitor, ["--token-file", "/nowhere"], {}, "token_file"),
        (sparrow, ["nodes", "-s", "nowhere"], {}, "scheduler: 'nowhere'"),
        (sparrow, ["nodes"], {"SPARROW_SCHEDULER": "nowhere"}, "SPARROW_SCHEDULER"),
        (sparrow, ["nodes", "--token-file", "/nowhere"], {}, "token_file"),
        (simulator, ["run", "--nodes", "0"], {}, "nodes"),
        (loadgen, ["run", "--load", "-1"], {}, "load"),
        (demo, ["--slots", "0"], {}, "--slots"),
        (demo, [], {"SPARROW_TOKEN": "short"}, "SPARROW_TOKEN"),
        (conformance, ["--places", "0", "true"], {}, "--places"),
    ],
)
def test_a_wrong_option_is_exit_code_2_wherever_it_comes_from(
    asked: click.Command,
    arguments: list[str],
    environment: dict[str, str],
    names: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if arguments[1:] and arguments[1].startswith("{}/"):
        path = tmp_path / "options.toml"
        path.write_text(arguments[1].removeprefix("{}/"))
        arguments = [arguments[0], str(path)]
    result = invoke(asked, *arguments)
    assert result.exit_code == 2, result.output
    assert names in result.output


def test_a_wrong_option_that_shows_when_the_daemon_starts_is_one_too() -> None:
    def start(_: SchedulerOptions) -> None:
        raise InvalidOption("listen_fd", 7, "a socket")

    result = invoke(command("daemon", SchedulerOptions, start, ""))
    assert (result.exit_code, result.output) == (2, "Error: listen_fd: 7 is not valid; allowed: a socket\n")


def test_loadgen_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without_pyarrow(name: str, *how: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return imported(name, *how, **more)

    for module in [name for name in sys.modules if name.startswith("loadgen.") and name != "loadgen.__main__"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    for arguments in (["run", "--preset", "fig9"], ["--help"]):
        result = invoke(loadgen, *arguments)
        assert (result.exit_code, result.output.count("\n")) == (1, 1), result.output
        assert f"pyarrow is not installed; it comes with {install_command('loadgen')}" in result.output
    monkeypatch.undo()
    importlib.invalidate_caches()


def test_a_clone_s_extras_are_installed_from_its_directory() -> None:
    """A package index need not have this version, nor any."""
    assert install_command("sql").endswith(", of a clone pip install 'PATH-OF-ITS-DIRECTORY[sql]'")
    extras = PYPROJECT["optional-dependencies"]
    for document in [Path("README.md"), *Path("docs").glob("*.md")]:
        text = document.read_text("utf-8")
        assert "pip install sparrow-py" not in re.sub("[\"']", "", text), document
        for extra in re.findall(r"pip install '[^']*\[(\w+)\]'", text):
            assert extra in extras, document


def test_the_packages_of_loadgens_extra_are_those_that_are_declared() -> None:
    declared = PYPROJECT["optional-dependencies"][LoadgenGroup.extra]
    assert {requirement.partition(">=")[0] for requirement in declared} == LoadgenGroup.extra_packages
