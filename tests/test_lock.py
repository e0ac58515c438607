"""What deployments install (requirements/, by `make lock`) agrees with pyproject.toml, as far as that is known here."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WANTED: dict[str, list[str]] = {
    "daemons.txt": PROJECT["dependencies"],
    "sql.txt": [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["sql"]],
    "flow.txt": [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["flow"]],
    "workflow.txt": [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["workflow"]],
    "docs.txt": [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["docs"]],
}
"""Of each file what it is for."""
PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[0-9][0-9a-z.+!]*)(?P<marker> ; [^\\]+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pins(file: str) -> dict[str, str]:
    """Name to version; every line of the file is a pin, a hash or a comment, and every pin has hashes."""
    found: dict[str, str] = {}
    for entry in (ROOT / "requirements" / file).read_text("utf-8").replace("\\\n", " ").splitlines():
        if entry.strip().startswith("#"):
            assert re.fullmatch(r" +#( +(via|via ([a-z0-9-]+)|[a-z0-9-]+|.*sparrow-py.*\(pyproject.toml\)))?", entry), (
                entry
            )
            continue
        pin, *hashes = re.split(r" +(?=--hash)", entry.strip())
        matched = PIN.fullmatch(pin.strip())
        assert matched and hashes and all(map(HASH.fullmatch, hashes)), entry[:100]
        assert matched["name"] not in found
        found[matched["name"]] = matched["version"]
    return found


def needed(requirements: list[str]) -> set[str]:
    """The names of all packages that these need, by what those say that are installed here."""
    names: set[str] = set()
    left = [Requirement(text) for text in requirements]
    while left:
        one = left.pop()
        name = canonicalize_name(one.name)
        if name in names or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        names.add(name)
        left += map(Requirement, metadata.requires(name) or ())
    return names


@pytest.mark.parametrize("file", WANTED)
def test_locked_versions_are_those_that_are_asked_for(file: str) -> None:
    locked = pins(file)
    for requirement in map(Requirement, WANTED[file]):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not in requirements/{file}: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement}, but {version} is locked: run `make lock`"


@pytest.mark.parametrize("file", WANTED)
def test_all_that_is_needed_is_locked_and_nothing_else(file: str) -> None:
    locked, wanted = set(pins(file)), needed(WANTED[file])
    assert wanted <= locked, f"{sorted(wanted - locked)}: run `make lock`"
    # Python 3.11, for which they are made, may need more than the Python that runs this.
    assert locked <= wanted | {"typing-extensions"}, f"{sorted(locked - wanted)}: run `make lock`"


@pytest.mark.parametrize("file", sorted(set(WANTED) - {"daemons.txt"}))
def test_they_agree(file: str) -> None:
    daemons, more = pins("daemons.txt"), pins(file)
    assert {name: more.get(name) for name in daemons} == daemons


@pytest.mark.parametrize("file", WANTED)
def test_no_place_is_named(file: str) -> None:
    """Where packages come from is for who installs them to say."""
    assert "://" not in (ROOT / "requirements" / file).read_text("utf-8")


# ---- the gate --------------------------------------------------------------------------------


@pytest.fixture
def audit() -> ModuleType:
    """`.ci/audit`, which is no module."""
    loader = SourceFileLoader("audit", str(ROOT / ".ci" / "audit"))
    spec = importlib.util.spec_from_loader("audit", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def report(*fixes: list[str]) -> dict[str, Any]:
    """What pip-audit says of a package with vulnerabilities that are mended in these versions."""
    vulns = [{"id": f"V-{number}", "fix_versions": versions} for number, versions in enumerate(fixes)]
    skipped = {"name": "other", "skip_reason": "not found"}
    return {"dependencies": [{"name": "web", "version": "1.0", "vulns": vulns}, skipped], "fixes": []}


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        (report(), 0, "WARNING: r.txt: 2 packages, 1 of them not looked up"),
        (report(["1.1", "2.0"]), 1, "ERROR: r.txt: web 1.0: V-0, mended in 1.1 or 2.0"),
        (report([]), 0, "WARNING: r.txt: web 1.0: V-0, which has no fix yet"),
        (report([], ["1.1"]), 1, "ERROR: r.txt: web 1.0: V-1, mended in 1.1"),
        (None, 0, "WARNING: r.txt: the list of known vulnerabilities could not be looked at"),
    ],
)
def test_the_gate_fails_where_there_is_a_fix(
    audit: ModuleType,
    found: Any,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(audit, "look_up", lambda *_: found)
    assert audit.main("pip-audit", "r.txt") == code
    assert said in capsys.readouterr().out


def test_a_report_that_cannot_be_made_is_none(audit: ModuleType) -> None:
    assert audit.look_up("/bin/false", "r.txt") is None and audit.look_up("/no/such/program", "r.txt") is None
