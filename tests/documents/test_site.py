"""What the documentation site is built from: every document and every public name has its place. That links lead
somewhere `make docs` finds, too, which builds it."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import sparrow_py
from docs.site import docstrings, source

ROOT = source.ROOT


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    source.lay_out(target)
    return target


def pages_of(nav: Any) -> list[str]:
    """The files that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    return [page for one in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(one)]


def test_the_navigation_has_every_page_once(laid_out: Path) -> None:
    named = pages_of(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"])
    assert sorted(named) == sorted(str(page.relative_to(laid_out)) for page in laid_out.rglob("*.md"))


def test_every_link_to_a_file_leads_to_one(laid_out: Path) -> None:
    for page in laid_out.rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", page.read_text("utf-8")):
            assert "://" in target or (page.parent / target).is_file(), f"{page.name}: {target}"


def test_every_public_name_is_on_one_page_of_the_reference(laid_out: Path) -> None:
    text = "".join((laid_out / "reference" / f"{name}.md").read_text("utf-8") for name in source.LIBRARY)
    assert sorted(re.findall(r"^::: sparrow_py\.(\w+)$", text, re.M)) == sorted(sparrow_py.__all__)


def test_what_is_not_for_callers_is_left_out(laid_out: Path) -> None:
    text = (laid_out / "reference" / "clients.md").read_text("utf-8")
    assert "::: sparrow_py.Client\n    options:\n      filters: ['!^(_.*|runs_here|forked|described)$']" in text


@pytest.mark.parametrize(
    ("path", "link", "moved"),
    [
        ("README.md", "(docs/python.md#calls)", "(python.md#calls)"),
        ("docs/python.md", "(../README.md)", "(overview.md)"),
        ("docs/python.md", "(#calls)", "(#calls)"),
        ("docs/dashboard.md", "(dashboard.png)", "(pictures/dashboard.png)"),
        ("docs/tour.md", "(../sparrow_py/client.py)", "(files/sparrow_py/client.py.txt)"),
        ("docs/python.md", "(https://example.org/python.md)", "(https://example.org/python.md)"),
    ],
)
def test_links_follow_the_documents(path: str, link: str, moved: str) -> None:
    assert source.relinked(f"[text]{link}", Path(path), set()) == f"[text]{moved}"


def test_items_of_docstrings_become_a_list() -> None:
    items = "first, second: numbers,\n    both.\nthird: a text: long."
    text = f"Does it.\n\nParameters\n----------\n{items}\n\nNote: it raises."
    assert docstrings.listed(text, {"first", "second", "third"}) == (
        "Does it.\n\n- `first`, `second`: numbers,\n    both.\n- `third`: a text: long.\n\nNote: it raises."
    )


def test_fonts_are_not_fetched_from_another_host() -> None:
    theme = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["theme"]
    assert theme["font"] is False
