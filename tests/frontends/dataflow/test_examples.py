"""The document's example and those of `examples/dataflow/` run and agree with numpy."""

from __future__ import annotations

import runpy
import sys
from typing import Any

import numpy as np
import pytest

from frontends.dataflow import Dataflow
from tests.support.dataflow_programs import logistic_data
from tests.support.documents import ROOT, blocks


def test_the_documents_program_and_its_numpy_agree() -> None:
    from scipy.special import expit  # Many modules, which no process needs that runs other tests.

    program, plain, *_ = blocks(ROOT / "docs" / "dataflow.md", "python")
    features, labels = logistic_data()
    names: dict[str, Any] = {
        "np": np, "expit": expit, "features": features, "labels": labels, "columns": features.shape[1],
    }  # fmt: skip
    here, there = dict(names), dict(names)
    exec(compile(program, "docs/dataflow.md", "exec"), here)
    exec(compile(plain, "docs/dataflow.md", "exec"), there)
    assert np.abs(here["weights"] - there["w"]).max() < 1e-9
    assert len(program.splitlines()) <= 32


def test_the_documents_compiled_stage_is_compiled() -> None:
    (stage,) = [block for block in blocks(ROOT / "docs" / "dataflow.md", "python") if "compiled=True" in block]
    df = Dataflow(partitions=2, progress=False)
    X, w = df.partition(np.ones((3, 2))), df.replicate(np.arange(2.0))
    names: dict[str, Any] = {"df": df, "X": X, "w": w}
    exec(compile(stage, "docs/dataflow.md", "exec"), names)
    assert df.run(lambda: names["scale"](rate=0.5) or X).tolist() == [[1, 0.5]] * 3


def example(name: str) -> dict[str, Any]:
    """The names that a module of the examples defines."""
    return runpy.run_path(str(ROOT / "examples" / "dataflow" / f"{name}.py"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("logistic_regression", ["--rows", "2000", "--partitions", "5"]),
        ("pagerank", ["--vertices", "500", "--edges", "4000", "--side", "3"]),
        ("kmeans", ["--points", "2000", "--clusters", "4", "--partitions", "3"]),
        ("kmeans", ["--points", "2000", "--clusters", "4", "--partitions", "3", "--compiled"]),
        ("water", ["--size", "41", "--blocks", "3", "2", "--frames", "2"]),
    ],
)
def test_examples_agree_with_numpy(
    name: str, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--check", "--plane", "inline", *options])
    runpy.run_path(str(ROOT / "examples" / "dataflow" / f"{name}.py"), run_name="__main__")
    assert "largest difference from numpy" in capsys.readouterr().out


@pytest.mark.rest
def test_once_they_converge_they_answer_as_solvers_of_scipy() -> None:
    """Which have other algorithms: a Newton method for weights, the linear equations of ranks."""
    from scipy import optimize, sparse  # As above.
    from scipy.cluster.vq import kmeans2
    from scipy.sparse.linalg import spsolve
    from scipy.special import expit

    logistic, ranking, clusters = example("logistic_regression"), example("pagerank"), example("kmeans")
    features, labels = logistic["made_up"](400, 3)
    weights = logistic["regression"](features, labels, 3, "inline", 1e-9)
    theirs = optimize.root(
        lambda w: features.T @ (expit(features @ w) - labels), np.zeros(3), tol=1e-12,
        jac=lambda w: (features.T * expit(features @ w) * expit(-features @ w)) @ features,
    )  # fmt: skip
    assert theirs.success and np.abs(weights - theirs.x).max() < 1e-6

    vertices, side = 60, 2
    pairs = ranking["made_up"](vertices, 300)
    ranks = ranking["pagerank"](ranking["cut"](pairs, vertices, side), vertices, side, "inline", rounds=150)
    links = np.zeros((vertices, vertices))
    links[pairs[:, 1], pairs[:, 0]] = 1.0
    degrees = links.sum(axis=0)
    links = np.where(degrees > 0, links / np.maximum(degrees, 1), 1 / vertices)
    damping = ranking["DAMPING"]
    equations = sparse.csc_matrix(np.eye(vertices) - damping * links)
    solved = spsolve(equations, np.full(vertices, (1 - damping) / vertices))
    assert np.abs(ranks - solved).max() < 1e-6 and abs(ranks.sum() - 1) < 1e-9

    points, start = clusters["made_up"](500, 2, 4)
    centres, _, _ = clusters["kmeans"](points, start, partitions=3, progress=False)
    assert np.abs(centres - kmeans2(points, start, iter=100, minit="matrix")[0]).max() < 1e-6


@pytest.mark.rest
def test_the_surface_is_the_same_bit_by_bit_in_machine_code_and_about_the_same_in_any_blocks() -> None:
    water = example("water")
    simulate, grid = water["simulate"], water["Grid"]
    whole = simulate(grid(40), 2, progress=False)
    compiled = simulate(grid(40), 2, compiled=True, progress=False)
    assert np.array_equal(whole.surface, compiled.surface)
    cut = simulate(grid(40, 4, 3), 2, progress=False)
    assert np.abs(whole.surface - cut.surface).max() < 1e-11
    assert whole.steps == cut.steps and len(set(whole.steps)) > 1  # Steps follow the water.


def test_the_water_example_is_as_large_as_the_papers() -> None:
    """The paper's simulation has 21 stages and 13 variables, in three nested loops."""
    water = example("water")
    made: list[Dataflow] = []

    class Kept(Dataflow):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    water["simulate"].__globals__["Dataflow"] = Kept
    water["simulate"](water["Grid"](12, 2, 1), 1, progress=False)
    (df,) = made
    assert len(df._definition.stages) >= 20 and len(df._definition.datasets) - 1 >= 12
