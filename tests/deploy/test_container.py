"""deploy/container: the image has what it needs and does not run as root; the compose file names options that are."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from node_monitor.options import NodeMonitorOptions
from scheduler.options import SchedulerOptions
from tests.support.documents import ROOT

HERE = ROOT / "deploy" / "container"
HADOLINT = Path(sys.executable).with_name("hadolint")
OPTIONS: dict[str, type] = {"sparrow-scheduler": SchedulerOptions, "sparrow-node-monitor": NodeMonitorOptions}


def instructions() -> list[tuple[str, str]]:
    """Of the Containerfile, with lines that go on joined."""
    text = re.sub(r"^#.*\n", "", (HERE / "Containerfile").read_text("utf-8"), flags=re.M).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())]


class TestImage:
    @pytest.mark.processes
    @pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is not installed")
    def test_hadolint_finds_nothing(self) -> None:
        done = subprocess.run([HADOLINT, HERE / "Containerfile"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")

    def test_it_has_all_packages_of_the_wheel(self) -> None:
        copied = {source.rstrip("/") for word, rest in instructions() if word == "COPY" for source in rest.split()[:-1]}
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= copied
        assert {"README.md", "LICENSE", "requirements"} <= copied

    def test_what_is_copied_is_there_and_not_ignored(self) -> None:
        let_in = {line[1:] for line in (ROOT / ".containerignore").read_text("utf-8").splitlines() if line[:1] == "!"}
        here = [rest for word, rest in instructions() if word == "COPY" and not rest.startswith("--from=")]
        sources = {source.rstrip("/") for rest in here for source in rest.split()[:-1]}
        assert sources == let_in
        assert all((ROOT / source).exists() for source in sources)
        assert (HERE / "Containerfile.dockerignore").resolve() == ROOT / ".containerignore"

    def test_it_runs_as_a_user_who_is_not_root(self) -> None:
        last = [rest for word, rest in instructions() if word in ("FROM", "USER")][-1]
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last)

    def test_its_ports_are_the_daemons(self) -> None:
        (ports,) = [rest for word, rest in instructions() if word == "EXPOSE"]
        assert [int(port) for port in ports.split()] == [SchedulerOptions.port, NodeMonitorOptions.port]


class TestCompose:
    @pytest.fixture
    def services(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text("utf-8"))["services"]
        return found

    def test_environments_are_options(self, services: dict[str, Any]) -> None:
        for service in services.values():
            names = {name.removeprefix("SPARROW_").lower() for name in service["environment"]}
            fields = OPTIONS[service["command"][0]].__dataclass_fields__
            assert names <= set(fields)
            assert {flag.removeprefix("--").replace("-", "_") for flag in service["command"][1:]} <= set(fields)

    def test_they_may_do_little(self, services: dict[str, Any]) -> None:
        for service in services.values():
            assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
            assert set(service["cap_add"]) == {"DAC_READ_SEARCH", "SETUID", "SETGID"}, "what with-secret.sh needs"
            assert "no-new-privileges:true" in service["security_opt"]
            assert service["build"]["dockerfile"] == str((HERE / "Containerfile").relative_to(ROOT))

    def test_the_commands_in_its_comment_name_this_file(self) -> None:
        text = (HERE / "compose.yaml").read_text("utf-8")
        named = {word for line in re.findall(r"^#   docker (.*)$", text, re.M) for word in shlex.split(line)}
        assert str((HERE / "compose.yaml").relative_to(ROOT)) in named


class TestSecret:
    def test_compose_gives_it_to_root_as_a_file(self) -> None:
        found = yaml.safe_load((HERE / "compose.yaml").read_text("utf-8"))
        for service in found["services"].values():
            assert "SPARROW_TOKEN" not in service["environment"], "init has the environment, too, and tasks can read it"
            assert (service["user"], service["secrets"]) == ("0:0", list(found["secrets"]))
            assert service["entrypoint"] == ["sh", "/opt/sparrow/with-secret.sh"]
        ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
        assert [one["file"] for one in found["secrets"].values()] == ["./token"]
        assert "/deploy/container/token" in ignored

    def test_the_user_that_the_script_becomes_is_the_images(self) -> None:
        (user,) = [rest for word, rest in instructions() if word == "USER"]
        text = (HERE / "with-secret.sh").read_text("utf-8")
        assert ":".join(re.findall(r"--re[ug]id (\d+)", text)) == user

    @pytest.mark.processes
    @pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="takes root, and setpriv")
    def test_the_daemon_has_it_and_has_no_way_to_the_file(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.touch(0o600)
        secret.write_text("of-the-cluster\n")
        look = "echo $SPARROW_TOKEN $(id -u):$(id -g) $HOME; sed -n s/^CapEff://p /proc/self/status; cat $SECRET_FILE"
        command = ["sh", str(HERE / "with-secret.sh"), "sh", "-c", look]
        environment = {**os.environ, "SECRET_FILE": str(secret)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        first, capabilities = done.stdout.splitlines()
        assert first == "of-the-cluster 10001:10001 /var/lib/sparrow"
        assert int(capabilities, 16) == 0
        assert "Permission denied" in done.stderr


class _Daemon(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/livez" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class TestHealthcheck:
    @pytest.fixture
    def healthcheck(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location("healthcheck", HERE / "healthcheck.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @pytest.fixture
    def port(self) -> Iterator[int]:
        """Of something that answers as a daemon does."""
        with ThreadingHTTPServer(("127.0.0.1", 0), _Daemon) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            yield server.server_port
            server.shutdown()
            thread.join()

    def test_a_daemon_that_answers_lives(self, healthcheck: ModuleType, port: int) -> None:
        assert healthcheck.main({"SPARROW_PORT": str(port)}) == 0
        assert healthcheck.main({"SPARROW_PORT": str(port), "SPARROW_TLS_CERT": "c"}) == 0

    @pytest.mark.parametrize("tls", [{}, {"SPARROW_TLS_CERT": "c"}])
    def test_one_that_does_not_answer_does_not(
        self, healthcheck: ModuleType, tls: dict[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert healthcheck.main({"SPARROW_PORT": "1", **tls}) == 1
        assert "port 1: " in capsys.readouterr().out

    def test_nor_does_one_with_an_error(
        self, healthcheck: ModuleType, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_Daemon, "status", 500)
        assert healthcheck.main({"SPARROW_PORT": str(port)}) == 1

    def test_the_ports_are_the_daemons(self, healthcheck: ModuleType) -> None:
        assert (SchedulerOptions.port, NodeMonitorOptions.port) == healthcheck.PORTS
