"""docs/workflow-semantics.md: its limits are those of the code, its last column what the reference interpreter says."""

import importlib
import re

from benchmarks.workflow import differences
from frontends.workflow.ir.scalars.result_types import CASTS
from tests.support.documents import section

PATH = "docs/workflow-semantics.md"


def test_the_limits_are_those_of_the_code() -> None:
    limits = re.findall(r"\| ([\d,]+) \| `([\w.]+)\.(\w+)` \|", section(PATH, "Limits"))
    assert len(limits) >= 12
    for number, module, name in limits:
        assert getattr(importlib.import_module(f"frontends.workflow.{module}"), name) == int(number.replace(",", ""))


def test_the_answers_of_workflows_are_those_of_the_reference_interpreter() -> None:
    rows = re.findall(r"^\| (.+?) \|.*\| (.+?) \|$", section(PATH, "Engines differ"), re.M)
    assert rows[1:] == [(point.title, differences.reference(point)) for point in differences.POINTS]


def test_all_casts_are_explained() -> None:
    rows = re.findall(r"^\| ([A-Z]+) \| ([A-Z, ]+) \|", section(PATH, "Scalar expressions"), re.M)
    explained = {(source, target) for source, targets in rows for target in targets.split(", ")}
    assert explained == {(source.value, target.value) for source, target in CASTS if source is not target}
