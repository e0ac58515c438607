"""docs/bugs-found.md names a test for each bug: the tests are there, under the names that stand in the document."""

from __future__ import annotations

import re

from tests.support.documents import ROOT

DOCUMENT = ROOT / "docs" / "bugs-found.md"
spans = re.compile(r"`([^`]+)`").findall


def named() -> list[tuple[str, str]]:
    """(file, test) of all tests that the document names; of a file that it names alone, (file, "")."""
    found = []
    for row in DOCUMENT.read_text("utf-8").splitlines():
        path = ""
        for span in spans(row.rstrip("| ").rpartition(" | ")[2]):
            if span.startswith("tests/"):
                path, _, test = span.partition("::")
                found.append((path, test))
            elif re.fullmatch(r"test_\w+", span):
                found.append((path, span))
    return found


def test_every_test_that_the_document_names_is_there() -> None:
    assert len(named()) > 150
    missing = [
        f"{path} {test}"
        for path, test in named()
        if not (ROOT / path).exists() or (test and not re.search(rf"def {test}\(", (ROOT / path).read_text("utf-8")))
    ]
    assert not missing


def test_every_bug_says_what_was_wrong_what_came_of_it_and_what_was_done() -> None:
    """In sentences, for somebody who was not there."""
    rows = [line.strip("| ").split(" | ") for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| ")]
    bugs = [cells for cells in rows if cells[1] != "what was wrong"]
    assert len(bugs) > 100
    for cells in bugs:
        assert len(cells) == 5, cells
        assert all(cell.endswith((".", ".)")) and len(cell.split()) >= 4 for cell in cells[1:4]), cells
