"""Where Python workers look for modules."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from node_monitor.executors.apps import FORK_SERVER, offered_apps, python_version
from node_monitor.options import NodeMonitorOptions
from sparrow_py.errors import InvalidOption

EXECUTOR = "frontends.python.executor"


def first_places(options: NodeMonitorOptions) -> list[str]:
    """Where tasks look first, as their fork server is told."""
    argv = offered_apps(options)["python"].argv
    assert FORK_SERVER in argv
    return list(argv[argv.index(EXECUTOR) + 1 :])


def test_by_default_tasks_find_what_lies_where_executors_start() -> None:
    assert first_places(NodeMonitorOptions()) == ["."]


def test_but_not_with_a_daemon_that_does_not_look_there_either(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = SimpleNamespace(safe_path=True)
    ours = SimpleNamespace(executable=sys.executable, version_info=sys.version_info, flags=flags)
    monkeypatch.setattr("node_monitor.executors.apps.sys", ours)
    assert first_places(NodeMonitorOptions()) == []


def test_an_operator_may_name_places(tmp_path: Path) -> None:
    places = (str(tmp_path), str(tmp_path / "two more"))
    Path(places[1]).mkdir()
    assert first_places(NodeMonitorOptions(python_path=places)) == [*places]


def test_another_interpreter_has_packages_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A `LocalCluster` names all places of its program's, this interpreter's among them."""
    monkeypatch.setattr("node_monitor.executors.apps.python_version", lambda python: python_version(sys.executable))
    ours = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
    options = NodeMonitorOptions(python="/opt/other/bin/python", python_path=(str(tmp_path), *ours))
    assert first_places(options) == [str(tmp_path)]
    assert not set(ours) & {word.removeprefix("--path=") for word in offered_apps(options)["python"].argv}


@pytest.mark.parametrize("entry", ["", "/srv/\0", "/no/such/place"])
def test_a_place_that_cannot_be_is_refused(entry: str) -> None:
    with pytest.raises(InvalidOption, match="python_path"):
        NodeMonitorOptions(python_path=(entry,))
