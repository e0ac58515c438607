"""deploy/systemd: units name options and variables that there are, and are confined; the script installs them."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import click
import pytest

from node_monitor.options import NodeMonitorOptions
from scheduler.options import SchedulerOptions
from sparrow_py.daemon.options import ENVIRONMENT_PREFIX, command, parse
from tests.support.documents import ROOT

HERE = ROOT / "deploy" / "systemd"
DAEMONS: dict[str, type] = {"sparrow-scheduler": SchedulerOptions, "sparrow-node-monitor": NodeMonitorOptions}
FILES = {"sparrow-scheduler": "scheduler.toml", "sparrow-node-monitor": "node-monitor.toml"}
EXPOSURE_MAX = {"sparrow-scheduler": 2.0, "sparrow-node-monitor": 2.5}
"""By `systemd-analyze security`, from 0 to 10."""
KEPT_FROM_TASKS = {"MemoryDenyWriteExecute", "PrivateDevices", "PrivateIPC", "PrivateUsers", "ProcSubset"}
"""What confines the scheduler, and would keep tasks of a node monitor from working."""


class Unit(configparser.RawConfigParser):
    """A unit; a setting that is there several times has all its values, a line each."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read_string(path.read_text("utf-8"), str(path))


def flags_of(daemon: str) -> set[str]:
    """All flags that it knows."""
    parameters = command(daemon, DAEMONS[daemon], lambda _: None, "").params
    return {name for one in parameters if isinstance(one, click.Option) for name in [*one.opts, *one.secondary_opts]}


@pytest.mark.parametrize("daemon", DAEMONS)
def test_the_unit_starts_the_daemon_with_flags_that_it_has(daemon: str) -> None:
    service = Unit(HERE / f"{daemon}.service")["Service"]
    program, *words = service["ExecStart"].split()
    assert program == f"/opt/sparrow/bin/{daemon}"
    commented = (HERE / f"{daemon}.default").read_text("utf-8")
    flags = [word for word in [*words, *re.findall(r"--[\w-]+", commented)] if word.startswith("--")]
    assert set(flags) <= flags_of(daemon)
    assert (service["Type"], service["KillMode"]) == ("notify", "mixed")


@pytest.mark.parametrize("daemon", DAEMONS)
def test_the_files_name_options_that_there_are(daemon: str) -> None:
    text = (HERE / FILES[daemon]).read_text("utf-8")
    known = {flag[2:].replace("-", "_") for flag in flags_of(daemon)}
    everything = tomllib.loads(re.sub(r"^#(?=\w+ = )", "", text, flags=re.M))
    assert len(everything) > len(tomllib.loads(text))
    assert set(everything) <= known
    variables = re.findall(rf"^#?{ENVIRONMENT_PREFIX}_(\w+)=", (HERE / f"{daemon}.default").read_text("utf-8"), re.M)
    assert variables
    assert {name.lower() for name in variables} <= known


@pytest.mark.parametrize("daemon", DAEMONS)
def test_the_daemon_takes_the_file(daemon: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 32)
    token.chmod(0o600)
    file = tmp_path / "options.toml"
    file.write_text((HERE / FILES[daemon]).read_text("utf-8").replace("/etc/sparrow/token", str(token)))
    options = parse(DAEMONS[daemon], ["--config", str(file)], environment=False)
    service = Unit(HERE / f"{daemon}.service")["Service"]
    assert options.host == "0.0.0.0"
    assert options.drain_timeout_s < float(service["TimeoutStopSec"]), "else systemd ends it before it has drained"


def test_directories_of_options_are_made_by_the_units() -> None:
    options = tomllib.loads((HERE / "node-monitor.toml").read_text("utf-8"))
    service = Unit(HERE / "sparrow-node-monitor.service")["Service"]
    assert str(Path(options["blob_dir"]).parent) == f"/var/lib/{service['StateDirectory']}"
    assert str(Path(options["socket_dir"]).parent) == f"/run/{service['RuntimeDirectory']}"


def test_node_monitors_are_confined_as_schedulers_are_but_where_that_would_hinder_tasks() -> None:
    def confining(daemon: str) -> set[str]:
        words = r"(Protect|Private|Restrict|Memory|Lock|NoNew|Keyring|Capability|Proc)\w+"
        service = Unit(HERE / f"{daemon}.service")["Service"]
        return {name for name in service if re.fullmatch(words, name)} - {"MemoryMax"}

    missing = confining("sparrow-scheduler") - confining("sparrow-node-monitor")
    assert missing == KEPT_FROM_TASKS
    reasons = (HERE / "sparrow-node-monitor.service").read_text("utf-8")
    assert all(re.search(rf"^#   {name}\b", reasons, re.M) for name in missing)


def test_what_changes_for_tasks_that_run_as_accounts() -> None:
    """What a node monitor needs that changes its user: tried on a machine, not seen by any other test."""
    service = Unit(HERE / "run-as.conf")["Service"]
    assert set(service["CapabilityBoundingSet"].split()) >= {"CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_KILL"}
    assert (service["User"], service["ProtectProc"], service["UMask"]) == ("root", "default", "0022")
    own = Unit(HERE / "sparrow-node-monitor.service")["Service"]
    assert (own["ProtectProc"], own["UMask"]) != (service["ProtectProc"], service["UMask"])
    token = tomllib.loads((HERE / "node-monitor.toml").read_text("utf-8"))["token_file"]
    assert service["LoadCredential"] == f"token:{token}"


def test_accounts_that_the_units_run_as_are_made() -> None:
    made = set(re.findall(r"^u (\S+)", (HERE / "sparrow.sysusers").read_text("utf-8"), re.M))
    assert made == {Unit(HERE / f"{daemon}.service")["Service"]["User"] for daemon in DAEMONS}


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("daemon", DAEMONS)
def test_how_exposed_the_services_are(daemon: str) -> None:
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(HERE / f"{daemon}.service")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said.stdout)
    assert found, said.stdout
    assert float(found[1]) < EXPOSURE_MAX[daemon]


class TestInstallation:
    @staticmethod
    def install(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(HERE / "install.sh"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)

    def test_files_come_to_their_places_and_configuration_stays(self, tmp_path: Path) -> None:
        own = tmp_path / "etc/sparrow/schedulers"
        own.parent.mkdir(parents=True)
        own.write_text("10.0.0.1:20503\n")
        done = self.install("--destdir", str(tmp_path), "--no-packages", "--prefix", "/srv/sparrow")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
        assert {
            "etc/default/sparrow-node-monitor",
            "etc/sparrow/node-monitor.toml",
            "etc/systemd/journald@sparrow.conf",
            "usr/lib/sysusers.d/sparrow.conf",
            "usr/lib/systemd/system/sparrow-scheduler.service",
            "usr/lib/tmpfiles.d/sparrow.conf",
        } <= there
        assert "etc/sparrow/token" not in there
        assert own.read_text() == "10.0.0.1:20503\n"
        unit = (tmp_path / "usr/lib/systemd/system/sparrow-scheduler.service").read_text()
        assert "ExecStart=/srv/sparrow/bin/sparrow-scheduler " in unit

    @pytest.mark.parametrize("directory", ["a/b", "{here}/a/b/"])
    def test_a_relative_directory_is_meant_from_here_and_is_in_no_program(self, tmp_path: Path, directory: str) -> None:
        made = tmp_path / "python"  # Makes an environment whose program names its interpreter, as `venv` and pip do.
        made.write_text(
            "#!/bin/sh\n"
            'mkdir -p "$3/bin"\n'
            'cp "$0" "$3/pyvenv.cfg"\n'
            'printf "#!/bin/sh\\n" > "$3/bin/python"\n'
            'printf "#!%s/bin/python\\n" "$(cd "$3" && pwd)" > "$3/bin/sparrow"\n'
            'chmod 755 "$3/bin/python"\n'
        )
        made.chmod(0o755)
        done = self.install("--destdir", directory.format(here=tmp_path), "--python", str(made), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / "a/b/opt/sparrow/bin/sparrow").read_text() == "#!/opt/sparrow/bin/python\n"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--nonsense"], "unknown argument --nonsense"),
            (["--prefix", "here"], "--prefix here is not valid; allowed: an absolute path"),
            (["--destdir"], "--destdir needs a value"),
            (["--python", "", "--no-packages"], "--python needs a value"),
            (["--requirements", "none"], "--requirements none is not valid; allowed: the name of a file of"),
        ],
    )
    def test_a_mistake_is_one_line(self, arguments: list[str], said: str) -> None:
        done = self.install(*arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr
