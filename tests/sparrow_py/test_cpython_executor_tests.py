"""CPython's own tests of executors against `SparrowExecutor`, where this interpreter ships them."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cpython_cases import CASES, Case
from tests.support.cpython_executor_tests import THEIRS, shipped

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", sorted({case.module for case in CASES.values()}))
def test_every_case_has_a_test_of_ours_or_a_reason(module: str) -> None:
    names = {node.name for node in ast.walk(ast.parse((ROOT / "tests" / module).read_text())) if hasattr(node, "name")}
    for theirs, case in CASES.items():
        if case.module == module:
            assert case.ours in names or (not case.ours and case.reason), theirs


def test_a_case_that_is_run_has_a_test_of_ours() -> None:
    assert Case("") not in CASES.values()
    assert sum(not case.reason for case in CASES.values()) >= 50


@pytest.mark.skipif(not shipped(), reason=f"this interpreter ships without CPython's own tests of executors ({THEIRS})")
@pytest.mark.timeout(300)
def test_cpythons_own_tests_pass() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.cpython_executor_tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    [counted] = re.findall(r"(\d+) were run", run.stdout)
    assert int(counted) >= 50
    assert "Dangling thread" not in run.stderr
