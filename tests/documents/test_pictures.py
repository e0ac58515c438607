"""Pictures in the documents show what is there now."""

from __future__ import annotations

import re

from tests.support.dashboard_picture import COLUMNS, columns_of, with_text
from tests.support.documents import ROOT


def test_the_picture_of_the_dashboard_has_the_columns_of_its_table_of_jobs() -> None:
    """If not: `python -m tests.support.dashboard_picture docs/dashboard.png`."""
    page = (ROOT / "scheduler" / "http" / "dashboard" / "dashboard.js").read_text("utf-8")
    (table,) = re.findall(r"^const fillJobs = table\(\"jobs\", \[\n(.*?)^\]", page, re.M | re.S)
    columns = re.findall(r'\["\w+", "([^"]+)", "\w+"', table)
    assert len(columns) > 10
    assert columns_of((ROOT / "docs" / "dashboard.png").read_bytes()) == columns


def test_a_picture_keeps_the_text_that_it_is_given() -> None:
    end = b"\0\0\0\0IEND\xaeB`\x82"
    assert columns_of(with_text(b"\x89PNG\r\n\x1a\n" + end, COLUMNS, "Job\nUser")) == ["Job", "User"]
