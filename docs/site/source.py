"""Lays out what the documentation site is built from: `python -m docs.site.source build/docs`, which `make docs` does.

The documents stay where they are. Here they are copied into one directory, their links follow them, and files that they
link to (tests, examples) come along as text. Pages of the reference have the names of modules alone: their text is that
of the docstrings, which mkdocstrings reads while the site is built.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType

import sparrow_py

ROOT = Path(__file__).parents[2]
PAGES_OF_ROOT = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PICTURES = (".png", ".svg")

LIBRARY: dict[str, tuple[str, tuple[str, ...]]] = {
    "clients": ("Clients and jobs", ("client", "async_client", "executor")),
    "calls": (
        "Calls, stages and tasks",
        ("call_jobs", "calls", "local_modules", "stored_values", "speculation", "job"),
    ),
    "clusters": ("Clusters and nodes", ("cluster", "remote_cluster", "cluster_nodes", "auth")),
    "actors": ("Actors", ("actor",)),
    "in-tasks": ("In a task", ("task_context",)),
    "errors": ("Errors", ("errors",)),
}
"""Of each page of the reference its title, and the modules of `sparrow_py` whose public names it has."""

OTHER_MODULES = {
    "adapters": ("joblib and Dask", ("sparrow_py.joblib", "sparrow_py.dask")),
    "frontends": (
        "Frontends",
        ("frontends.command.tasks", "frontends.synthetic.tasks", "frontends.sql.frontend", "frontends.workflow.api"),
    ),
    "dataflow": ("Programs over arrays", ("frontends.dataflow",)),
    "policies": ("Policies of the flow plane", ("scheduler.flow.policies.policy",)),
    "simulator": ("The simulator", ("simulator",)),
}
"""Pages of modules that the documents import from, beyond `sparrow_py`: all that these name in `__all__`, or have."""

PACKAGES = ("frontends.dataflow", "simulator")
"""Those of them whose names come from modules below, or from other packages."""

link = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def place(path: Path) -> Path:
    """Where a file of the repository lies in the site, both relative."""
    if path.suffix in PICTURES:
        return Path("pictures") / path.name
    if path.suffix != ".md":
        return Path("files") / f"{path}.txt"  # Browsers show text, and save all else.
    return Path("overview.md" if path.name == "README.md" else path.name.lower())


def relinked(text: str, path: Path, linked: set[Path]) -> str:
    """The text of a document, with links to files of the repository as the site has them; adds these to `linked`."""

    def moved(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(path.parent / found[1]))
        if not (ROOT / target).is_file():
            return found[0]  # Of another host; or a missing one, which the build tells of.
        linked.add(target)
        return os.path.relpath(place(target), place(path).parent) + (found[2] or "")

    return link.sub(moved, text)


def not_for_callers(name: str) -> list[str]:
    """What docs/python.md says not to be part of this class's API although it has no underscore."""
    text = (ROOT / "docs" / "python.md").read_text("utf-8").partition("\n### Not for callers\n")[2]
    found = re.search(rf"of `{name}` ((?:`\w+`(?:, )?)+)", text)
    return re.findall(r"\w+", found[1]) if found else []


def library_page(title: str, modules: tuple[str, ...]) -> str:
    """A page of the names that `sparrow_py` exports from these of its modules."""
    text = f"# {title}\n\n"
    for module in modules:
        for name in sparrow_py.__all__:
            if getattr(sparrow_py, name).__module__ == f"sparrow_py.{module}":
                hidden = "|".join(["_.*", *not_for_callers(name)])
                text += f"::: sparrow_py.{name}\n    options:\n      filters: ['!^({hidden})$']\n\n"
    return text


def module_page(title: str, modules: tuple[str, ...]) -> str:
    """A page of modules: of packages what they export, from where it is at home."""
    text = f"# {title}\n\n"
    for name in modules:
        if name in PACKAGES:
            package = import_module(name)
            exported = {one: getattr(package, one) for one in package.__all__}
            text += "".join(f"::: {home}.{one}\n\n" for one, value in exported.items() if (home := home_of(value)))
        else:
            text += f"::: {name}\n    options: {{show_root_full_path: true}}\n\n"
    return text


def home_of(value: object) -> str | None:
    """The module in which a class or function is defined; None for a constant."""
    return value.__module__ if isinstance(value, type | FunctionType) else None


def pages() -> list[Path]:
    """All documents, relative to the repository."""
    return [Path(name) for name in PAGES_OF_ROOT] + [path.relative_to(ROOT) for path in sorted(ROOT.glob("docs/*.md"))]


def lay_out(target: Path) -> None:
    """Write all that the site is built from into this directory, whose contents are removed first."""
    shutil.rmtree(target, ignore_errors=True)
    (target / "reference").mkdir(parents=True)
    linked: set[Path] = set()
    for page in pages():
        (target / place(page)).write_text(relinked((ROOT / page).read_text("utf-8"), page, linked), "utf-8")
    for file in linked - set(pages()):
        (target / place(file)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, target / place(file))
    for name, page_of in LIBRARY.items():
        (target / "reference" / f"{name}.md").write_text(library_page(*page_of), "utf-8")
    for name, page_of in OTHER_MODULES.items():
        (target / "reference" / f"{name}.md").write_text(module_page(*page_of), "utf-8")
    shutil.copytree(ROOT / "docs" / "site" / "assets", target / "assets")


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
