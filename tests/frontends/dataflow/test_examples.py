"""The document's example and those of `examples/dataflow/` run and agree with numpy."""

from __future__ import annotations

import runpy
import sys
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from tests.support.dataflow_programs import logistic_data
from tests.support.documents import ROOT, blocks


def test_the_documents_program_and_its_numpy_agree() -> None:
    program, plain = blocks(ROOT / "docs" / "dataflow.md", "python")
    features, labels = logistic_data()
    names: dict[str, Any] = {
        "np": np, "expit": expit, "features": features, "labels": labels, "columns": features.shape[1],
    }  # fmt: skip
    here, there = dict(names), dict(names)
    exec(compile(program, "docs/dataflow.md", "exec"), here)
    exec(compile(plain, "docs/dataflow.md", "exec"), there)
    assert np.abs(here["weights"] - there["w"]).max() < 1e-9
    assert len(program.splitlines()) <= 32


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("logistic_regression", ["--rows", "2000", "--partitions", "5"]),
        ("pagerank", ["--vertices", "500", "--edges", "4000", "--side", "3"]),
    ],
)
def test_examples_agree_with_numpy(
    name: str, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--check", "--plane", "inline", *options])
    runpy.run_path(str(ROOT / "examples" / "dataflow" / f"{name}.py"), run_name="__main__")
    assert "largest difference from numpy" in capsys.readouterr().out
