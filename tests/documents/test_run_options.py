"""docs/run.md has every option of `sparrow run`, and every placeholder."""

import re

from frontends.cli.run import run
from frontends.command.templates import NUMBER, PARTS, SLOT
from tests.support.documents import code_spans, section


def first_cells(heading: str) -> set[str]:
    """What stands in back quotes in the first cells of a section's table."""
    rows = re.findall(r"^\| (`.*?) \|", section("docs/run.md", heading), re.M)
    return {span for row in rows for span in code_spans(row)}


def test_every_option_is_explained() -> None:
    names = {name for one in run.params for name in [*one.opts, *one.secondary_opts] if name.startswith("-")}
    assert first_cells("Options") == names


def test_every_placeholder_is_explained() -> None:
    assert {f"{{{what}}}" for what in [*PARTS, NUMBER, SLOT]} <= first_cells("Placeholders")
