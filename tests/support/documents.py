"""The documents, read: sections, blocks, tables."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def section(path: str, heading: str) -> str:
    """What stands under a heading, up to the next one of its level or a higher one."""
    text = (ROOT / path).read_text("utf-8")
    found = re.search(rf"^(##+) {re.escape(heading)}\n(.*?)(?=^##+ |\Z)", text, re.M | re.S)
    assert found, f"{path} has no section {heading!r}"
    level = len(found[1])
    body = re.match(rf"(.*?)(?=^#{{1,{level}}} |\Z)", text[found.start(2) :], re.M | re.S)
    assert body
    return body[1]


def headings(text: str, level: int) -> list[str]:
    """The headings of this level."""
    return re.findall(rf"^{'#' * level} (.*)$", text, re.M)


def blocks(path: Path, language: str) -> list[str]:
    """The blocks of this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)


def rows(text: str) -> dict[str, str]:
    """Of each table row that begins with a `name`: the name and the next cell, without back quotes."""
    return {name: cell.strip(" `") for name, cell in re.findall(r"^\| `([\w.]+)` \| (.*?) \|", text, re.M)}


def code_spans(text: str) -> list[str]:
    """What stands between single back quotes, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
