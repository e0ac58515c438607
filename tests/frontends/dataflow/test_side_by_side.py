"""The programs for those who come from Dask, Ray and MPI, as docs/dataflow.md prints them: all answer as numpy does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparrow_py import LocalCluster
from tests.support.documents import section

SECTION = section("docs/dataflow.md", "Coming from Dask, Ray or MPI")
NUMPY, OURS, DASK, RAY, MPI = re.findall(r"^```python\n(.*?)^```", SECTION, re.M | re.S)
ROD = NUMPY.partition("u = ")[0]
TIMEOUT_S = 120
RAY_STARTS = """
import ray
ray.init(num_cpus=2, object_store_memory=80_000_000, include_dashboard=False, logging_level="error")
"""


def run(program: str, **names: Any) -> dict[str, Any]:
    """What the names of a program stand for when it is over."""
    exec(compile(program, "docs/dataflow.md", "exec"), names)
    return names


def expected() -> Any:
    return run(NUMPY)["u"]


def test_ours_answers_as_numpy() -> None:
    assert np.array_equal(run(ROD + OURS)["warm"], expected())


@pytest.mark.processes
def test_ours_answers_as_numpy_on_workers(cluster: LocalCluster) -> None:
    options = "cluster, workers=2, partitions=4, plane='local', progress=False"
    assert "Dataflow(partitions=4)" in OURS
    on_workers = OURS.replace("Dataflow(partitions=4)", f"Dataflow({options})")
    assert np.array_equal(run(ROD + on_workers, cluster=cluster)["warm"], expected())


@pytest.mark.rest
@pytest.mark.parametrize("peer", ["dask", "ray", "mpi4py"])
def test_theirs_answer_as_numpy(peer: str, tmp_path: Path) -> None:
    pytest.importorskip(peer)
    python, begin = [sys.executable], ""
    if peer == "mpi4py":
        mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert mpiexec is not None
        python = [mpiexec, "-n", "3", sys.executable]
    if peer == "ray":
        begin = RAY_STARTS
    program = {"dask": DASK, "ray": RAY, "mpi4py": MPI}[peer]
    end = "if 'warm' in globals():\n    np.save('warm.npy', warm)\n"
    (tmp_path / "program.py").write_text(ROD + begin + program + end)
    subprocess.run([*python, "program.py"], cwd=tmp_path, timeout=TIMEOUT_S, check=True)
    assert np.array_equal(np.load(tmp_path / "warm.npy"), expected())
